import { once } from 'node:events';
import type { WriteStream } from 'node:tty';
import { styleText } from 'node:util';
import type { Failure } from './failure.ts';
import { printable, printableLines, safeJson, widthOf } from './printable.ts';

type Style = 'bold' | 'dim' | 'red' | 'green' | 'yellow' | 'cyan' | 'blue';

/** A piece of a line, with a style that is left out where NO_COLOR is set or the output is no terminal. */
export interface Styled {
  readonly style: Style;
  readonly text: string;
}
export type Piece = string | Styled;

/** A column of a table. */
export interface Column {
  readonly title: string;
  readonly align?: 'right';
}

/** What is written to: standard output or standard error. */
export type PrintStream = NodeJS.WritableStream & Partial<Pick<WriteStream, 'isTTY' | 'columns'>>;

/**
 * All that envctl prints. Text is made printable here, so that nothing that a daemon says can act on the terminal; only `raw()`
 * passes bytes on as they are.
 */
export class Printer {
  readonly isJson: boolean;
  readonly #stdout: PrintStream;
  readonly #stderr: PrintStream;
  readonly #isQuiet: boolean;
  /** What begins and ends a note. */
  #edges: readonly [begin: string, end: string] = ['', '\n'];

  constructor(stdout: PrintStream, stderr: PrintStream, { json = false, quiet = false } = {}) {
    this.#stdout = stdout;
    this.#stderr = stderr;
    this.isJson = json;
    this.#isQuiet = quiet;
  }

  /** Whether standard output is a terminal. */
  get isTerminal(): boolean {
    return this.#stdout.isTTY === true;
  }

  /** Whether progress may be drawn. */
  get drawsProgress(): boolean {
    return this.#stderr.isTTY === true && !this.isJson && !this.#isQuiet;
  }

  /** The width of the terminal in cells. */
  get width(): number {
    return this.#stderr.columns || this.#stdout.columns || 80;
  }

  /** A line of the result; waits while the reader is slow. */
  async line(...pieces: readonly Piece[]): Promise<void> {
    await put(this.#stdout, `${pieces.map((piece) => render(this.#stdout, piece)).join('')}\n`);
  }

  /** Text of several lines of the result. */
  async text(text: string): Promise<void> {
    await put(this.#stdout, printableLines(text));
  }

  /** One value as one line of JSON. */
  async json(value: unknown): Promise<void> {
    await put(this.#stdout, `${safeJson(value)}\n`);
  }

  /** The result in the form that was asked for. */
  async result(value: unknown, show: () => Promise<void>): Promise<void> {
    if (this.isJson) await this.json(value);
    else await show();
  }

  /** Bytes of a process or a file, as they are. */
  async raw(bytes: Uint8Array, to: 'stdout' | 'stderr' = 'stdout'): Promise<void> {
    await put(to === 'stdout' ? this.#stdout : this.#stderr, bytes);
  }

  /** Rows below their titles; the last column is not padded. */
  async table(
    columns: readonly Column[],
    rows: readonly (readonly Piece[])[],
    { hasTitles = true } = {},
  ): Promise<void> {
    const cells = rows.map((row) => row.map((piece) => printable(plain(piece))));
    const widths = columns.map(({ title }, index) =>
      Math.max(widthOf(title), ...cells.map((row) => widthOf(row[index] ?? ''))),
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

  /** A note beside the result, on standard error. */
  note(...pieces: readonly Piece[]): void {
    if (this.#isQuiet) return;
    const [begin, end] = this.#edges;
    this.#stderr.write(begin + pieces.map((piece) => render(this.#stderr, piece)).join('') + end);
  }

  /** A warning, which is also shown with `--quiet`. */
  warn(text: string): void {
    const [begin, end] = this.#edges;
    this.#stderr.write(
      `${begin}${render(this.#stderr, { style: 'yellow', text: 'warning:' })} ${printable(text)}${end}`,
    );
  }

  /** Until it is disposed of, notes fit a terminal in raw mode, where the cursor may be anywhere. */
  inRawTerminal(): Disposable {
    this.#edges = ['\r\x1b[K', '\r\n'];
    return {
      [Symbol.dispose]: () => {
        this.#edges = ['', '\n'];
      },
    };
  }

  /** Draws a line of progress over the one before; empty: removes it. */
  progress(text: string): void {
    this.#stderr.write(`\r\x1b[K${printable(text)}`);
  }

  /** An error: one line, or one object with `--json`. */
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
