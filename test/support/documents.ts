import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** A block of code in a document. */
export interface Block {
  readonly heading: string;
  /** Of its first line in the document. */
  readonly line: number;
  readonly language: string;
  readonly code: string;
  /** What it prints, by the block of `text` that follows it; `…` stands for anything. Empty: there is none. */
  readonly output: string;
}

/** What came of a block. */
export interface Outcome {
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** The blocks of a document that can be run, in order; `console` needs a machine of its own. */
export function readBlocks(file: string): Block[] {
  const document = readFileSync(join(ROOT, file), 'utf8');
  const blocks: Block[] = [];
  for (const match of document.matchAll(/^```(\w+)\n(.*?)^```$/gms)) {
    const [, language = '', code = ''] = match;
    const before = document.slice(0, match.index);
    const heading =
      before
        .match(/^#+ .+$/gm)
        ?.at(-1)
        ?.replace(/^#+ /, '') ?? '';
    const last = blocks.at(-1);
    if (language === 'console') continue;
    if (language !== 'text')
      blocks.push({ heading, line: before.split('\n').length + 1, language, code, output: '' });
    else if (last) blocks[blocks.length - 1] = { ...last, output: code };
  }
  return blocks;
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
