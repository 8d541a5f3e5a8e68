import { setTimeout as delay } from 'node:timers/promises';
import headless, { type IBufferCell, type Terminal } from '@xterm/headless';
import { type IPty, spawn } from 'node-pty';
import { until } from '../../support/until.ts';
import type { Span, Still } from './film.ts';

const KEY_MS = 45;
/** Stills are not closer than this, in milliseconds. */
const STILL_MS = 80;
/** A longer time in which nothing changes is shortened to this, in milliseconds. */
const IDLE_MS = 1500;

export interface Size {
  readonly cols: number;
  readonly rows: number;
}

/** A shell in a terminal, whose screen is kept over time. */
export class Recorder {
  readonly #pty: IPty;
  readonly #screen: Terminal;
  readonly #stills: { at: number; lines: Span[][] }[] = [];
  readonly #prompt: string;
  #told = '';

  /** `prompt`: what the shell writes when it waits for a command. */
  constructor(size: Size, env: Readonly<Record<string, string>>, prompt: string) {
    this.#prompt = prompt;
    this.#screen = new headless.Terminal({ ...size, allowProposedApi: true });
    const args = ['--norc', '--noprofile', '--noediting'];
    this.#pty = spawn('bash', args, { ...size, name: 'xterm-256color', env: { ...env, PS1: prompt } });
    this.#pty.onData((text) => {
      this.#told += text;
      this.#screen.write(text, () => this.#look());
    });
  }

  /** Waits for the prompt. */
  async ready(): Promise<void> {
    await until('the shell waits', () => this.#told.endsWith(this.#prompt));
  }

  /** Types a command as people do, and waits until it has ended, or shows `seen`. */
  async run(command: string, seen?: string): Promise<void> {
    for (const key of command) {
      this.#pty.write(key);
      await delay(KEY_MS);
    }
    await delay(4 * KEY_MS);
    this.#told = '';
    this.#pty.write('\r');
    if (seen === undefined) await this.ready();
    else await until(`'${seen}' is shown`, () => this.#told.includes(seen));
    await delay(IDLE_MS);
  }

  /** Ends the shell; returns what was shown. */
  end(): Still[] {
    this.#look();
    this.#pty.kill();
    let time = 0;
    return this.#stills.map(({ at, lines }, index) => {
      if (index > 0) time += Math.min(IDLE_MS, at - (this.#stills[index - 1]?.at ?? at));
      return { time, lines };
    });
  }

  #look(): void {
    const at = performance.now();
    const last = this.#stills.at(-1);
    const lines = this.#lines();
    if (last && at - last.at < STILL_MS) last.lines = lines;
    else this.#stills.push({ at, lines });
  }

  #lines(): Span[][] {
    const { active } = this.#screen.buffer;
    return Array.from({ length: this.#screen.rows }, (_, row) => {
      const line = active.getLine(active.viewportY + row);
      const spans: Span[] = [];
      for (let column = 0; column < this.#screen.cols; column++) {
        const cell = line?.getCell(column);
        if (cell) append(spans, cell);
      }
      return spans;
    });
  }
}

/** Adds a cell to the last span, if it has the same style. */
function append(spans: Span[], cell: IBufferCell): void {
  const text = cell.getChars() || ' ';
  const color = cell.isFgDefault() ? null : cell.getFgColor();
  const style = { color, isBold: cell.isBold() !== 0, isDim: cell.isDim() !== 0 };
  const last = spans.at(-1);
  const isSame = last?.color === style.color && last.isBold === style.isBold && last.isDim === style.isDim;
  if (last && isSame) spans[spans.length - 1] = { ...last, text: last.text + text };
  else spans.push({ ...style, text });
}
