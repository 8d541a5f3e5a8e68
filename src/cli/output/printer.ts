import { once } from 'node:events';
import type { WriteStream } from 'node:tty';
import { styleText } from 'node:util';
import type { Failure } from './failure.ts';
import { printable, printableLines, safeJson, widthOf } from './printable.ts';

type Style = 'bold' | 'dim' | 'red' | 'green' | 'yellow' | 'cyan' | 'blue';

/** A piece of a line. Its style is left out if NO_COLOR is set or the output is no terminal. */
export interface Styled {
  readonly style: Style;
  readonly text: string;
}
export type Piece = string | Styled;

/** Describes a column of a table. */
export interface Column {
  readonly title: string;
  readonly align?: 'right';
}

/** A stream of output: standard output or standard error. */
export type PrintStream = NodeJS.WritableStream & Partial<Pick<WriteStream, 'isTTY' | 'columns'>>;

/**
 * Prints everything that envctl prints. It makes text printable, so that no text of a daemon can control the terminal. Only
 * `raw()` writes bytes as they are.
 */
export class Printer {
  readonly isJson: boolean;
  readonly #stdout: PrintStream;
  readonly #stderr: PrintStream;
  readonly #isQuiet: boolean;
  /** Notes begin and end with these texts. */
  #edges: readonly [begin: string, end: string] = ['', '\n'];

  constructor(stdout: PrintStream, stderr: PrintStream, { json = false, quiet = false } = {}) {
    this.#stdout = stdout;
    this.#stderr = stderr;
    this.isJson = json;
    this.#isQuiet = quiet;
  }

  /** True if standard output is a terminal. */
  get isTerminal(): boolean {
    return this.#stdout.isTTY === true;
  }

  /** True if progress may be drawn. */
  get drawsProgress(): boolean {
    return this.#stderr.isTTY === true && !this.isJson && !this.#isQuiet;
  }

  /** The width of the terminal, in cells. */
  get width(): number {
    return this.#stderr.columns || this.#stdout.columns || 80;
  }

  /** Prints a line of the result. Waits while the reader is slow. */
  async line(...pieces: readonly Piece[]): Promise<void> {
    await put(this.#stdout, `${pieces.map((piece) => render(this.#stdout, piece)).join('')}\n`);
  }

  /** Prints text of several lines as a part of the result. */
  async text(text: string): Promise<void> {
    await put(this.#stdout, printableLines(text));
  }

  /** Prints one value as one line of JSON. */
  async json(value: unknown): Promise<void> {
    await put(this.#stdout, `${safeJson(value)}\n`);
  }

  /** Prints the result as JSON if that was asked for, and otherwise by `show`. */
  async result(value: unknown, show: () => Promise<void>): Promise<void> {
    if (this.isJson) await this.json(value);
    else await show();
  }

  /** Writes bytes of a process or a file as they are. */
  async raw(bytes: Uint8Array, to: 'stdout' | 'stderr' = 'stdout'): Promise<void> {
    await put(to === 'stdout' ? this.#stdout : this.#stderr, bytes);
  }

  /** Prints rows below their titles. Does not pad the last column. */
  async table(
    columns: readonly Column[],
    rows: readonly (readonly Piece[])[],
    { hasTitles = true } = {},
  ): Promise<void> {
    const cells = rows.map((row) => row.map((piece) => printable(plain(piece))));
    // A table may have more rows than a call may have arguments.
    const widths = columns.map(({ title }, index) =>
      cells.reduce((widest, row) => Math.max(widest, widthOf(row[index] ?? '')), widthOf(title)),
    );
    const lay = (pieces: readonly Piece[]) =>
      pieces.map((piece, index) => {
        const gap = ' '.repeat(Math.max(0, (widths[index] ?? 0) - widthOf(printable(plain(piece)))));
        const text = render(this.#stdout, piece);
        if (columns[index]?.align === 'right') return gap + text;
        return index === columns.length - 1 ? text : text + gap;
      });
    const titles = columns.map(({ title }): Piece => ({ style: 'bold', text: title }));
    for (const pieces of hasTitles ? [titles, ...rows] : rows)
      await put(this.#stdout, `${lay(pieces).join('  ').trimEnd()}\n`);
  }

  /** Prints a note on standard error, which is not part of the result. */
  note(...pieces: readonly Piece[]): void {
    if (this.#isQuiet) return;
    const [begin, end] = this.#edges;
    this.#stderr.write(begin + pieces.map((piece) => render(this.#stderr, piece)).join('') + end);
  }

  /** Prints a warning on standard error, even with `--quiet`. */
  warn(text: string): void {
    const [begin, end] = this.#edges;
    this.#stderr.write(
      `${begin}${render(this.#stderr, { style: 'yellow', text: 'warning:' })} ${printable(text)}${end}`,
    );
  }

  /** Makes notes fit a terminal in raw mode, where the cursor may be anywhere, until the result is disposed of. */
  inRawTerminal(): Disposable {
    this.#edges = ['\r\x1b[K', '\r\n'];
    return {
      [Symbol.dispose]: () => {
        this.#edges = ['', '\n'];
      },
    };
  }

  /** Draws a line of progress over the last one. An empty text removes it. */
  progress(text: string): void {
    this.#stderr.write(`\r\x1b[K${printable(text)}`);
  }

  /** Prints an error as one line, or as one object with `--json`. */
  error({ message, reason, exitCode }: Failure): void {
    if (this.isJson) this.#stderr.write(`${safeJson({ error: { reason, exitCode, message } })}\n`);
    else
      this.#stderr.write(
        `${render(this.#stderr, { style: 'red', text: 'envctl:' })} ${printable(message)}\n`,
      );
  }
}

function plain(piece: Piece): string {
  return typeof piece === 'string' ? piece : piece.text;
}

function render(stream: PrintStream, piece: Piece): string {
  const text = printable(plain(piece));
  return typeof piece === 'string' ? text : styleText(piece.style, text, { stream });
}

async function put(stream: PrintStream, data: string | Uint8Array): Promise<void> {
  if (!stream.write(data)) await once(stream, 'drain');
}
