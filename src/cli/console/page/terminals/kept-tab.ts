import type { CellSize, StartMessage } from '../wire/messages.ts';
import { NO_OUTPUT, type OutputOffsets, type StartSource } from '../wire/output-source.ts';

/** What a reload keeps of a tab, besides what its screen shows. */
export interface KeptTab {
  readonly title: string;
  readonly name: string | null;
  readonly pid: number;
  readonly hasEnded: boolean;
  readonly hasTerminal: boolean;
  readonly size: CellSize;
  /** What the screen shows already. */
  readonly offsets: OutputOffsets;
  /** How it is started again; null: it was not started here. */
  readonly start: StartSource | null;
}

const MOST_CELLS = 1000;

/** A tab as it was kept; null: it is none. */
export function keptTabIn(value: unknown): KeptTab | null {
  const { title, name, pid, hasEnded, hasTerminal, size, offsets, start } = objectIn(value);
  if (typeof pid !== 'number' || typeof title !== 'string') return null;
  const { cols, rows } = objectIn(size);
  const { stdout, stderr, pty } = objectIn(offsets);
  return {
    ...{ title, pid, hasEnded: hasEnded === true, hasTerminal: hasTerminal === true },
    name: typeof name === 'string' ? name : null,
    size: { cols: countIn(cols, 80), rows: countIn(rows, 24) },
    offsets: { stdout: numberIn(stdout), stderr: numberIn(stderr), pty: numberIn(pty) },
    start: startIn(start),
  };
}

/** The tab where there is no room for what its screen shows: its output is read again. */
export function withoutScreen(kept: KeptTab): KeptTab {
  return { ...kept, offsets: NO_OUTPUT };
}

function startIn(value: unknown): StartSource | null {
  const { start, user } = objectIn(value);
  const { process } = objectIn(start);
  const { cmd, args } = objectIn(process);
  if (typeof cmd !== 'string' || !Array.isArray(args) || typeof user !== 'string') return null;
  return { start: start as StartMessage, user };
}

function objectIn(value: unknown): Readonly<Record<string, unknown>> {
  return Object(value);
}

function numberIn(value: unknown): number {
  return Number.isSafeInteger(value) ? Math.max(0, value as number) : 0;
}

function countIn(value: unknown, least: number): number {
  return Math.min(MOST_CELLS, numberIn(value)) || least;
}
