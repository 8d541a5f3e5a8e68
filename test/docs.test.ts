import { existsSync, globSync, readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { readBlocks } from './support/code/documents.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const read = (file: string) => readFileSync(join(ROOT, file), 'utf8');

const documents = globSync(['*.md', 'docs/**/*.md'], { cwd: ROOT }).filter((file) => file !== 'CHANGELOG.md');
const decisions = globSync('docs/decisions/[0-9]*.md', { cwd: ROOT }).sort();

/** The first parts of a path in a document. */
const ROOTS = ['', 'src/', 'src/daemon/', 'src/gateway/', 'native/src/', 'docs/'];

describe.each(documents)('the document %s', (file) => {
  test('links to existing files', () => {
    const links = Array.from(read(file).matchAll(/\]\((?!https?:)([^)#\s]+)/g), ([, link = '']) => link);
    expect(links.filter((link) => !existsSync(join(ROOT, dirname(file), link)))).toEqual([]);
  });

  test('names existing files', () => {
    const paths = Array.from(
      read(file).matchAll(/`((?:[\w.-]+\/)+[\w.-]+\.(?:ts|c|h|md|yaml|proto|service|sh))(?:`|:\d)/g),
      ([, path = '']) => path,
    );
    const found = (path: string) =>
      ROOTS.some((root) => existsSync(join(ROOT, root, path))) ||
      globSync(`**/${path}`, { cwd: join(ROOT, 'src') }).length > 0;
    expect(paths.filter((path) => !/NNN|^(dist|lib|bin)\//.test(path) && !found(path))).toEqual([]);
  });
});

/** The blocks of `console` that a test runs, each by its document and first line. */
const run = globSync('test/**/*.{test,guest}.ts', { cwd: ROOT })
  .flatMap((file) => [...read(file).matchAll(/\bcommandsOf\(\s*'([^']+)',\s*'([^']+)',?\s*\)/g)])
  .map(([, document, first]) => `${document}: ${first}`);

// `test/clients/talk.test.ts` runs the other blocks, `test/readme.test.ts` those of README.md.
test.each(['docs/calling.md', 'docs/pausing.md'])(
  'each block of console in %s is run by a test',
  (document) => {
    const blocks = readBlocks(document).filter(({ language }) => language === 'console');
    const told = blocks.map(({ code }) => `${document}: ${code.split('\n', 1)[0]}`);
    expect(told.filter((block) => !run.includes(block))).toEqual([]);
  },
);

describe('decisions', () => {
  test.each(decisions)('%s has its number, a title, a status and a date', (file) => {
    const number = basename(file).slice(0, 3);
    expect(read(file)).toMatch(
      new RegExp(`^# ${number} .+\\n\\nStatus: (accepted|superseded by \\d{3}), \\d{4}-\\d\\d-\\d\\d\\n`),
    );
  });

  test('each is in the index, with its title and status', () => {
    const index = read('docs/decisions/README.md').replaceAll(/ +/g, ' ');
    const rows = decisions.map((file) => {
      const [, number, title, status, date] =
        /^# (\d{3}) (.+)\n\nStatus: (.+), (\S+)\n/.exec(read(file)) ?? [];
      return `| [${number}](${basename(file)}) | ${title} | ${status} | ${date} |`;
    });
    expect(rows.filter((row) => !index.includes(row))).toEqual([]);
  });
});
