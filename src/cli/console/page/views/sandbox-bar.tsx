import { useEffect, useState } from 'preact/hooks';
import { formatSeconds } from '../../../output/formats.ts';
import { useValue } from '../state/observable.ts';
import { type SandboxLease, WARNING_MS } from '../state/sandbox-lease.ts';
import type { SandboxParts } from '../workspace/sandbox-operations.ts';
import { SandboxActions } from './sandbox-actions.tsx';

interface SandboxBarProps {
  readonly parts: SandboxParts;
  readonly lease: SandboxLease;
  onKilled(): void;
}

/** The time of the sandbox and what can be done about it, in the head of each view. */
export function SandboxBar({ parts, lease, onKilled }: SandboxBarProps) {
  const { kind, sandbox } = useValue(lease.state);
  if (sandbox === null || kind === 'expired' || kind === 'ended') return null;
  return (
    <div class="lease" role="group" aria-label="Sandbox">
      <TimeLeft lease={lease} />
      <SandboxActions {...{ parts, sandboxes: [sandbox], onKilled }} />
    </div>
  );
}

/** Counts down; a screen reader is told by the notice before the end instead. */
function TimeLeft({ lease }: { readonly lease: SandboxLease }) {
  useClock();
  const left = lease.leftMs;
  if (left === null) return null;
  return (
    <span class={left < WARNING_MS ? 'left lost' : 'left'} role="timer">
      {formatSeconds(left / 1000)} left
    </span>
  );
}

/** Draws the component again each second. */
export function useClock(): void {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((count) => count + 1), 1000);
    return () => clearInterval(timer);
  }, []);
}
