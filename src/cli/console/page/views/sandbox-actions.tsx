import { printable } from '../../../output/printable.ts';
import { durationOf } from '../state/guest-snapshot.ts';
import type { SandboxMessage } from '../wire/messages.ts';
import {
  EXTENSIONS_S,
  extendSandbox,
  resumeSandbox,
  type SandboxParts,
} from '../workspace/sandbox-operations.ts';

interface SandboxActionsProps {
  readonly parts: SandboxParts;
  readonly sandboxes: readonly SandboxMessage[];
  /** After the end of them. */
  onKilled?(): void;
}

const SHORT: Readonly<Record<number, string>> = { 600: '+10 min', 3600: '+1 h' };

/** The buttons that change the life of a sandbox; each says what it has done. */
export function SandboxActions({ parts, sandboxes, onKilled }: SandboxActionsProps) {
  const { list, questions, notices } = parts;
  const idsOf = (some: readonly SandboxMessage[]) => some.map(({ sandboxID }) => sandboxID);
  const running = idsOf(sandboxes.filter(({ state }) => state !== 'paused'));
  const paused = idsOf(sandboxes.filter(({ state }) => state === 'paused'));
  const each = (ids: readonly string[], act: (id: string) => Promise<unknown>) =>
    void Promise.all(ids.map(act));
  const kill = async () => {
    const [isOne, names] = [sandboxes.length === 1, idsOf(sandboxes).map(printable).join(', ')];
    const [title, label] = isOne ? ['the sandbox', 'it'] : [`${sandboxes.length} sandboxes`, 'them'];
    const text = `${names} ${isOne ? 'is' : 'are'} ended, with all that is in ${label}.`;
    if (!(await questions.confirm(`Kill ${title}?`, text, `Kill ${label}`))) return;
    const ends = idsOf(sandboxes).map((id) => notices.attempt(() => list.change(id, null)));
    if ((await Promise.all(ends)).every(Boolean)) onKilled?.();
  };
  return (
    <>
      {EXTENSIONS_S.map((seconds) => (
        <button
          key={seconds}
          type="button"
          disabled={running.length === 0}
          title={`Extend by ${durationOf(seconds)}`}
          onClick={() => each(running, (id) => extendSandbox(parts, id, seconds))}
        >
          {SHORT[seconds]}
        </button>
      ))}
      <button
        type="button"
        disabled={running.length === 0}
        onClick={() => each(running, (id) => notices.attempt(() => list.change(id, 'pause')))}
      >
        Pause
      </button>
      <button
        type="button"
        disabled={paused.length === 0}
        onClick={() => each(paused, (id) => resumeSandbox(parts, id))}
      >
        Resume
      </button>
      <button type="button" class="danger" disabled={sandboxes.length === 0} onClick={() => void kill()}>
        Kill
      </button>
    </>
  );
}
