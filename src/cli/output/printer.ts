import { once } from 'node:events';
import type { WriteStream } from 'node:tty';
import { stripVTControlCharacters, styleText } from 'node:util';
import type { Failure } from './failure.ts';
import { clippedTo, printable, printableLines, safeJson, widthOf } from './printable.ts';

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

interface TableLayout {
  readonly hasTitles?: boolean;
  readonly fits?: boolean;
}

/** The space between columns. */
const GAP = '  ';

/** A stream of output: standard output or standard error. */
export type PrintStream = NodeJS.WritableStream & Partial<Pick<WriteStream, 'isTTY' | 'columns' | 'rows'>>;

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

  /**
   * Prints rows below their titles. Does not pad the last column. With `fits`, cuts off what a terminal has no room for, so that no
   * line wraps.
   */
  async table(
    columns: readonly Column[],
    rows: readonly (readonly Piece[])[],
    layout: TableLayout = {},
  ): Promise<void> {
    for (const line of this.tableLines(columns, rows, layout)) await put(this.#stdout, `${line}\n`);
  }

  /** Returns the lines of a table. */
  tableLines(
    columns: readonly Column[],
    rows: readonly (readonly Piece[])[],
    { hasTitles = true, fits = false }: TableLayout = {},
  ): string[] {
    const cells = rows.map((row) => row.map((piece) => printable(plain(piece))));
    // A table may have more rows than a call may have arguments.
    const widths = columns.map(({ title }, index) =>
      cells.reduce((widest, row) => Math.max(widest, widthOf(row[index] ?? '')), widthOf(title)),
    );
    const most = fits && this.isTerminal ? this.#stdout.columns || 80 : Number.POSITIVE_INFINITY;
    const lay = (pieces: readonly Piece[]) => {
      let room = most;
      return pieces.map((piece, index) => {
        const shown = clippedTo(printable(plain(piece)), room);
        const gap = ' '.repeat(Math.max(0, Math.min(widths[index] ?? 0, room) - widthOf(shown)));
        room = Math.max(0, room - (widths[index] ?? 0) - GAP.length);
        const text = render(this.#stdout, typeof piece === 'string' ? shown : { ...piece, text: shown });
        if (columns[index]?.align === 'right') return gap + text;
        return index === columns.length - 1 ? text : text + gap;
      });
    };
    const titles = columns.map(({ title }): Piece => ({ style: 'bold', text: title }));
    return (hasTitles ? [titles, ...rows] : rows).map((pieces) => fitted(lay(pieces), most));
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

/** Joins the cells of a line. Gaps beyond the room of a terminal are left out. */
function fitted(cells: readonly string[], most: number): string {
  let [line, width] = ['', 0];
  for (const [index, cell] of cells.entries()) {
    const own = (index === 0 ? 0 : GAP.length) + widthOf(stripVTControlCharacters(cell));
    if (width + own > most) break;
    line += (index === 0 ? '' : GAP) + cell;
    width += own;
  }
  return line.trimEnd();
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
