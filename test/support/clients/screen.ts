import headless, { type IBufferCell } from '@xterm/headless';

/** A terminal without a window, as a client has one. */
export class TestScreen {
  readonly #terminal;

  constructor({ cols = 80, rows = 24 } = {}) {
    this.#terminal = new headless.Terminal({ cols, rows, allowProposedApi: true, logLevel: 'off' });
  }

  /** Resolves when it is drawn. */
  write(bytes: Uint8Array): Promise<void> {
    return new Promise((resolve) => this.#terminal.write(bytes, resolve));
  }

  resize({ cols, rows }: { readonly cols: number; readonly rows: number }): void {
    this.#terminal.resize(cols, rows);
  }

  /** What its user sees and types into: cells, cursor and modes. */
  get looks() {
    return { cells: this.cells, modes: this.modes };
  }

  /** Which of the two screens is shown, and the modes of input. */
  get modes() {
    const { modes, buffer } = this.#terminal;
    const { mouseTrackingMode, bracketedPasteMode, sendFocusMode } = modes;
    const { applicationCursorKeysMode, applicationKeypadMode, wraparoundMode } = modes;
    return {
      ...{ screen: buffer.active.type, mouseTrackingMode, bracketedPasteMode, sendFocusMode },
      ...{ applicationCursorKeysMode, applicationKeypadMode, wraparoundMode },
    };
  }

  /** The cursor, and of each cell its character and how that looks. */
  get cells(): { readonly cursor: readonly number[]; readonly lines: readonly string[] } {
    const { active } = this.#terminal.buffer;
    const lines = Array.from({ length: this.#terminal.rows }, (_, row) =>
      Array.from({ length: this.#terminal.cols }, (_, column) =>
        cellOf(active.getLine(active.baseY + row)?.getCell(column)),
      ).join('|'),
    );
    return { cursor: [active.cursorX, active.cursorY], lines };
  }

  get text(): string {
    const { active } = this.#terminal.buffer;
    return Array.from(
      { length: this.#terminal.rows },
      (_, row) => active.getLine(active.baseY + row)?.translateToString(true) ?? '',
    ).join('\n');
  }
}

function cellOf(cell: IBufferCell | undefined): string {
  if (!cell) return '';
  const colors = [cell.getFgColorMode(), cell.getFgColor(), cell.getBgColorMode(), cell.getBgColor()];
  const looks = [cell.isBold(), cell.isInverse(), cell.isUnderline(), cell.isDim(), cell.isItalic()];
  return `${cell.getChars() || ' '} ${[...colors, ...looks].join(',')}`;
}
