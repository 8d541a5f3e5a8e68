import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

/**
 * The documents whose blocks `test/clients/talk.test.ts` runs from the first to the last, except those of `console`, of which it runs
 * the ones that start a gateway. Documents of one group share a daemon, and the first block of shell in a group is the beginning of all
 * others.
 */
export const RUN_IN_ORDER = [
  ['docs/calling.md', 'docs/browser.md', 'docs/start.md', 'docs/extensions.md', 'docs/gateway.md'],
  ['docs/pausing.md', 'docs/upgrading.md', 'docs/operating.md'],
  ['docs/envctl.md'],
] as const;

/** A block of code in a document. */
export interface Block {
  readonly file: string;
  readonly heading: string;
  /** Of its first line in the document. */
  readonly line: number;
  readonly language: string;
  readonly code: string;
  /** What it prints, by the block of `text` that follows it; `…` stands for anything. */
  readonly output: string;
}

/** What came of a block. */
export interface Outcome {
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Languages of blocks that are commands or programs; `console`: each of them is run by a test of its own. */
const LANGUAGES = ['sh', 'js', 'py', 'html', 'console'];

/** Whether a block starts the gateway that the blocks behind it call, with the flags that its page names. */
export const startsGateway = ({ language, code }: Pick<Block, 'language' | 'code'>) =>
  language === 'console' && code.startsWith('npm run gateway -- ');

/**
 * All blocks of a document, in order; the blocks without a language are no commands. Throws for a block that no test would
 * find: in another language, or with a fence that is not at the begin of its line.
 */
export function readBlocks(file: string): Block[] {
  const blocks: Block[] = [];
  let heading = '';
  let open: { readonly language: string; readonly line: number; readonly lines: string[] } | null = null;
  for (const [index, line] of readFileSync(join(ROOT, file), 'utf8').split('\n').entries()) {
    const fence = /^(.*?)(?:```|~~~)(.*)$/.exec(line);
    if (open && line !== '```') open.lines.push(line);
    else if (open) {
      add(blocks, {
        file,
        heading,
        line: open.line,
        language: open.language,
        code: open.lines.map((one) => `${one}\n`).join(''),
      });
      open = null;
    } else if (fence) {
      const [, before, language = ''] = fence;
      if (before !== '' || !['', 'text', ...LANGUAGES].includes(language))
        throw new Error(`${file}:${index + 1}: no test runs a block that begins with '${line}'`);
      open = { language, line: index + 2, lines: [] };
    } else heading = /^#+ (.+)$/.exec(line)?.[1] ?? heading;
  }
  if (open) throw new Error(`${file}:${open.line}: the block has no end`);
  return blocks;
}

/** Text is what the block before it prints. */
function add(blocks: Block[], block: Omit<Block, 'output'>): void {
  const last = blocks.at(-1);
  if (block.language === 'text' && last) blocks[blocks.length - 1] = { ...last, output: block.code };
  else if (LANGUAGES.includes(block.language)) blocks.push({ ...block, output: '' });
}

/** The block of `console` with this first line, for the test that runs it: `test/docs.test.ts` finds none without one. */
export function commandsOf(file: string, first: string): string {
  const found = readBlocks(file).find(
    ({ language, code }) => language === 'console' && code.startsWith(`${first}\n`),
  );
  if (!found) throw new Error(`${file} has no block of console that begins with '${first}'`);
  return found.code;
}

/** The regular expression of an output; a line of `…` alone stands for any lines. */
export function patternOf(output: string): RegExp {
  const lines = output.split('\n').map((line) =>
    line === '…'
      ? '[^]*?'
      : line
          .split('…')
          .map((part) => part.replaceAll(/[.*+?^${}()|[\]\\/]/g, '\\$&'))
          .join('[^\\n]*'),
  );
  return new RegExp(`^${lines.join('\\n')}$`);
}
