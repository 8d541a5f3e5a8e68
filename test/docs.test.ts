import { existsSync, globSync, readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { INTERFACE_VERSION } from '../src/base/program/version.ts';
import { FRAMEWORKS } from './support/clients/frameworks.ts';
import { RUN_IN_ORDER, readBlocks, startsGateway } from './support/code/documents.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const read = (file: string) => readFileSync(join(ROOT, file), 'utf8');

const documents = globSync(['*.md', 'docs/**/*.md'], { cwd: ROOT }).filter((file) => file !== 'CHANGELOG.md');
const decisions = globSync('docs/decisions/[0-9]*.md', { cwd: ROOT }).sort();

/** The first parts of a path in a document. */
const ROOTS = ['', 'src/', 'src/daemon/', 'src/gateway/', 'native/src/', 'docs/'];

/** The anchors of the headings of a document, as code hosts make them. */
function anchorsOf(file: string): string[] {
  const headings = Array.from(read(file).matchAll(/^#+ (.+)$/gm), ([, heading = '']) => heading);
  return headings.map((heading) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-'),
  );
}

describe.each(documents)('the document %s', (file) => {
  test('links to existing files', () => {
    const links = Array.from(read(file).matchAll(/\]\((?!https?:)([^)#\s]+)/g), ([, link = '']) => link);
    expect(links.filter((link) => !existsSync(join(ROOT, dirname(file), link)))).toEqual([]);
  });

  test('links to existing headings', () => {
    const links = Array.from(
      read(file).matchAll(/\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)/g),
      ([, path = '', anchor = '']) => [path === '' ? file : join(dirname(file), path), anchor] as const,
    );
    expect(links.filter(([target, anchor]) => !anchorsOf(target).includes(anchor))).toEqual([]);
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

/** Each document with commands that users copy. */
const manuals = documents.filter((file) => !file.startsWith('docs/decisions/'));

/** The blocks that a test of their own runs, each by its document and first line. */
const runAlone = globSync('test/**/*.{test,guest,package}.ts', { cwd: ROOT })
  .flatMap((file) => [...read(file).matchAll(/\bcommandsOf\(\s*'([^']+)',\s*'([^']+)',?\s*\)/g)])
  .map(([, document, first]) => `${document}: ${first}`);

/** The documents and blocks that no test can run, with the reason. */
const NOT_RUN: Readonly<Record<string, string>> = {
  'CONTRIBUTING.md': 'it lists the scripts of package.json, and the test below looks for each of them there',
  'docs/gateway.md: cp -R dist-gateway /opt/envd-gateway':
    'it changes the services of the machine; test/gateway/dist.test.ts starts the same files',
  'docs/packages.md: apt-get install ./envd_*.deb':
    'it changes the machine; test/package/debian.package.ts does it in a root',
  'docs/packages.md: apt-get install ./envd-gateway_*.deb':
    'it changes the machine; test/package/debian.package.ts does it in a root',
  'docs/packages.md: skopeo copy "oci-archive:envd-$VERSION-linux-x64.oci.tar" "docker://registry.example/envd:$VERSION"':
    'it needs a registry; test/package/artefacts.package.ts copies to a directory',
  'docs/gateway.md: curl -sS -X PATCH "$GATEWAY/hosts/node-3" -H \'X-API-Key: KEY\' --json \'{"drain":true,"sandboxes":"pause"}\'':
    'needs a hook that pauses machines; test/gateway/hosts.test.ts drains',
  'docs/gateway.md: curl -sS "$GATEWAY/sandboxes/shop/previews" -H \'X-API-Key: KEY\' --json \'{"port":3000,"path":"/cart?id=7","expiresIn":600}\'':
    'it needs a domain; test/gateway/previews.test.ts makes such links and opens them',
  'docs/mcp.md':
    'it needs programs of agents; test/cli/mcp.test.ts and mcp-http.test.ts start the same command',
  'docs/platform.md':
    'it runs until it is ended; test/platform/containers.test.ts starts the same, with the published client',
  'docs/operating.md: cd "$(mktemp -d)"': 'it needs Java, and changes the certificates of the machine',
  'docs/operating.md: mkdir -p ~/.pki/nssdb': 'it needs the database of certificates of a browser',
};

/** `test/clients/talk.test.ts` and `test/readme.test.ts` run all blocks of these documents but those of `console`. */
const runWhole: readonly string[] = [...RUN_IN_ORDER.flat(), 'README.md'];

test('docs/README.md links to each document', () => {
  const links = Array.from(
    read('docs/README.md').matchAll(/\]\(([\w-]+\.md)/g),
    ([, link]) => `docs/${link}`,
  );
  const all = globSync('docs/*.md', { cwd: ROOT });
  expect(all.filter((file) => file !== 'docs/README.md' && !links.includes(file))).toEqual([]);
});

describe('the blocks of commands', () => {
  const named = manuals.flatMap((file) =>
    readBlocks(file)
      .filter((block) => !runWhole.includes(file) || (block.language === 'console' && !startsGateway(block)))
      .map(({ code }) => `${file}: ${code.split('\n', 1)[0]}`),
  );

  const excuses = Object.keys(NOT_RUN);
  const covers = (block: string) => (excuse: string) => block === excuse || block.startsWith(`${excuse}: `);

  test('are run by a test, or there is a reason against it', () => {
    expect(named.filter((block) => !runAlone.includes(block) && !excuses.some(covers(block)))).toEqual([]);
  });

  test('exist if they are said not to be run', () => {
    expect(excuses.filter((excuse) => !named.some((block) => covers(block)(excuse)))).toEqual([]);
  });
});

test.each(manuals)('%s names existing scripts of npm', (file) => {
  const scripts = Object.keys(JSON.parse(read('package.json')).scripts);
  const names = Array.from(
    read(file).matchAll(/\bnpm run (?:--silent )?([\w:-]+)/g),
    ([, name = '']) => name,
  );
  expect(names.filter((name) => !scripts.includes(name))).toEqual([]);
});

test('docs/compatibility.md names the versions of the clients that the tests run', () => {
  const rows = read('docs/compatibility.md').matchAll(/^\| `([^`]+)`[^|]*\| (\d+\.\d+\.\d+) +\|/gm);
  const told = Array.from(rows, ([, name = '', version]) => [name, version]);
  const { dependencies, devDependencies, version } = JSON.parse(read('package.json'));
  const installed = { ...dependencies, ...devDependencies, ...FRAMEWORKS };
  expect(told.length).toBeGreaterThan(3);
  expect(told).toEqual(told.map(([name = '']) => [name, installed[name]]));
  expect(read('docs/compatibility.md')).toContain(
    `envd ${version} has the interface version ${INTERFACE_VERSION}`,
  );
});

describe('docs/troubleshooting.md', () => {
  const sources = globSync(['src/**/*.ts', 'native/src/**/*.c', 'systemd/image/*.sh'], { cwd: ROOT })
    .map(read)
    .join('\n')
    // A text that goes on in the next line of the source.
    .replaceAll(/' \+\n\s+'/g, '');
  const quoted = Array.from(
    read('docs/troubleshooting.md').matchAll(/^### `(.+)`$/gm),
    ([, text = '']) => text,
  );

  test('quotes many texts', () => expect(quoted.length).toBeGreaterThan(30));

  test.each(quoted)('quotes a text of the sources: %s', (text) => {
    const parts = text.split('…').map((part) => part.trim());
    expect(parts.filter((part) => !sources.includes(part))).toEqual([]);
  });
});

test('docs/glossary.md has at most 25 terms, in order', () => {
  const rows = read('docs/glossary.md').matchAll(/^\| (?!term |-)([^|]+?) +\|/gm);
  const terms = Array.from(rows, ([, term = '']) => term);
  expect(terms.length).toBeLessThanOrEqual(25);
  expect(terms).toEqual(terms.toSorted((a, b) => a.localeCompare(b, 'en')));
});

describe('decisions', () => {
  test.each(decisions)('%s has its number, a title, a status and a date', (file) => {
    const number = basename(file).slice(0, 3);
    expect(read(file)).toMatch(
      new RegExp(`^# ${number} .+\\n\\nStatus: (accepted|superseded by \\d{3}), \\d{4}-\\d\\d-\\d\\d\\n`),
    );
  });

  test.each(decisions)('%s has the form of all pages, and is short', (file) => {
    const headings = Array.from(read(file).matchAll(/^#+ (.+)$/gm), ([, heading]) => heading).slice(1);
    const form = ['Question', 'Decision', 'Reasons', 'Alternatives'];
    expect([form, [...form, 'Figures']]).toContainEqual(headings);
    const words = read(file)
      .split(/\s+/)
      .filter((word) => /\w/.test(word));
    expect(words.length).toBeLessThan(540);
  });

  test('those that sources name exist', () => {
    const sources = globSync(['{src,native,test,systemd,.ci}/**/*', '*.json'], {
      cwd: ROOT,
      exclude: ['native/build/**', 'src/gen/**'],
      withFileTypes: true,
    }).filter((entry) => entry.isFile());
    const named = sources.flatMap(({ parentPath, name }) =>
      Array.from(
        readFileSync(join(parentPath, name), 'utf8').matchAll(/\bdocs\/decisions\/\d{3}[\w-]*\.md/g),
        ([path]) => `${path} in ${name}`,
      ),
    );
    expect(named.length).toBeGreaterThan(20);
    expect(named.filter((one) => !decisions.includes(one.split(' ', 1)[0] ?? ''))).toEqual([]);
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
