import type { SandboxLine } from './sandbox-lines.ts';

/** Gateways round times, so a smaller difference is none, in milliseconds. */
const SAME_TIME_MS = 1500;

type ChangeType = 'appear' | 'pause' | 'resume' | 'time' | 'end';

/** What has happened to a sandbox, with what it is since then; at an end, with what it was. */
export interface SandboxChange extends SandboxLine {
  readonly type: ChangeType;
}

/** A sandbox in one of these phases keeps it; the others are steps from one to another. */
const SETTLED = ['running', 'paused', ''];

/** Finds what has changed from one look at the sandboxes to the next. */
export class SandboxChanges {
  #known: ReadonlyMap<string, SandboxLine> = new Map();

  /** Returns the changes since the look before, or since nothing. A sandbox that is on its way to another phase has not changed yet. */
  take(now: readonly SandboxLine[]): readonly SandboxChange[] {
    const ids = new Set(now.map(({ id }) => id));
    const gone = Array.from(this.#known.values()).filter(({ id }) => !ids.has(id));
    const ended = gone.map((line) => ({ ...line, type: 'end' as const }));
    const told = now.filter(({ phase }) => phase !== 'creating').map((line) => this.#settled(line));
    const others = told.flatMap((line) => changesOf(this.#known.get(line.id), line));
    this.#known = new Map(told.map((line) => [line.id, line]));
    return [...ended, ...others];
  }

  #settled(line: SandboxLine): SandboxLine {
    const old = this.#known.get(line.id);
    return old && !SETTLED.includes(line.phase) ? old : line;
  }
}

function changesOf(old: SandboxLine | undefined, line: SandboxLine): SandboxChange[] {
  if (!old) return [{ ...line, type: 'appear' }];
  if (old.state !== line.state) return [{ ...line, type: line.state === 'paused' ? 'pause' : 'resume' }];
  // A running one that began again is another machine under the same id.
  if (line.state === 'running' && old.startedAt !== line.startedAt)
    return [
      { ...old, type: 'end' },
      { ...line, type: 'appear' },
    ];
  const moved = Math.abs(Date.parse(old.endAt ?? '') - Date.parse(line.endAt ?? ''));
  return moved > SAME_TIME_MS ? [{ ...line, type: 'time' }] : [];
}
