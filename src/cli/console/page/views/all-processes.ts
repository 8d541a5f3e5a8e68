import { useEffect, useState } from 'preact/hooks';
import { callErrorOf } from '../wire/call-error.ts';
import type { DaemonClient } from '../wire/daemon-client.ts';
import type { ListMessage, ProcessMessage } from '../wire/messages.ts';
import type { Workspace } from '../workspace/workspace.ts';
import { CpuShares } from './process-tree.ts';

const INTERVAL_MS = 2000;
/** Most answers that are put together: each has at most 512 processes. */
const MAX_ANSWERS = 20;

interface AllProcesses {
  readonly processes: readonly ProcessMessage[];
  readonly cpu: ReadonlyMap<number, number>;
  readonly problem: string | null;
}

/** Every process of the guest, as of a moment ago, for as long as the component lives. */
export function useAllProcesses(workspace: Workspace): AllProcesses {
  const { daemon } = workspace;
  const [all, setAll] = useState<AllProcesses>({ processes: [], cpu: new Map(), problem: null });
  useEffect(() => {
    const shares = new CpuShares();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let hasLeft = false;
    const look = async () => {
      const found = workspace.obstacle
        ? null
        : await listAll(daemon).catch((error: unknown) => callErrorOf(error).message);
      if (hasLeft) return;
      if (typeof found === 'string') setAll((before) => ({ ...before, problem: found }));
      else if (found) setAll({ processes: found, cpu: shares.read(found), problem: null });
      timer = setTimeout(() => void look(), INTERVAL_MS);
    };
    void look();
    return () => {
      hasLeft = true;
      clearTimeout(timer);
    };
  }, [daemon]);
  return all;
}

async function listAll(daemon: DaemonClient): Promise<ProcessMessage[]> {
  const all: ProcessMessage[] = [];
  for (let answers = 0; answers < MAX_ANSWERS; answers++) {
    const message = { scope: 'LIST_SCOPE_GUEST', usage: true, afterPid: all.at(-1)?.pid ?? 0 };
    const { processes = [], truncated } = await daemon.unary<ListMessage>('process.Process/List', message);
    all.push(...processes);
    if (!truncated || processes.length === 0) break;
  }
  return all;
}
