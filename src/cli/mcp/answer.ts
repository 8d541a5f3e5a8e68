import { randomBytes } from 'node:crypto';
import { printable } from '../output/printable.ts';

/** Text that comes from the sandbox, such as the output of a command, and what it is. */
export interface Quoted {
  readonly name: string;
  readonly text: string;
}

/** The answer of a tool, as the protocol has it. */
export interface ToolAnswer {
  readonly content: { type: 'text'; text: string }[];
  readonly isError?: boolean;
  readonly [member: string]: unknown;
}

/**
 * Returns an answer with the tool's own words first. What the sandbox says is between lines with a word that it cannot know, so
 * that nothing in it passes for the tool's own words.
 */
export function answer(words: string, quoted: readonly Quoted[] = [], isError = false): ToolAnswer {
  const mark = randomBytes(6).toString('hex');
  const hint = quoted.length === 0 ? '' : `\nWhat follows between lines with ${mark} comes from the sandbox.`;
  const blocks = quoted.map(({ name, text }) => `--- ${name} ${mark} ---\n${text}\n--- end ${mark} ---`);
  const content = [words + hint, ...blocks].map((text) => ({ type: 'text' as const, text }));
  return { content, ...(isError && { isError }) };
}

/** Returns the answer for something that has failed. */
export function failed(words: string, quoted: readonly Quoted[] = []): ToolAnswer {
  return answer(printable(words), quoted, true);
}

/** Returns lines that have at most `most` bytes together, and how many lines that is. */
export function linesWithin(lines: readonly string[], most: number): { text: string; shown: number } {
  let length = 0;
  const shown = lines.findIndex((line) => {
    length += Buffer.byteLength(line) + 1;
    return length > most;
  });
  const taken = shown < 0 ? lines : lines.slice(0, shown);
  return { text: taken.join('\n'), shown: taken.length };
}

/** Returns the bytes without a character at their end that is cut in two. */
export function wholeCharacters(bytes: Buffer): Buffer {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back] ?? 0;
    // A byte that continues a character is passed over, to the one that says how many there are.
    if ((byte & 0xc0) === 0x80) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? bytes.subarray(0, -back) : bytes;
  }
  return bytes;
}
