import { dirname } from 'node:path';
import type { Cgroup } from '../../linux/cgroups/cgroup2.ts';

/** A cgroup that a sweep visits. With `keep` it stays running. */
export interface Candidate {
  readonly cgroup: Cgroup;
  readonly keep: boolean;
}

/**
 * The cgroups that stay running because a resume depends on them, relative to the top of the hierarchy: init, the journal,
 * the services of NFS (mounting hangs without them), and port forwarding.
 */
const RESUME_DEPENDS_ON: readonly string[] = [
  'init.scope',
  'system.slice/systemd-journald.service',
  'system.slice/rpcbind.service',
  'system.slice/rpcbind.socket',
  'system.slice/rpc-statd.service',
  'system.slice/port-forwarding.service',
  'envd/port-forwarding',
];

/**
 * Yields the cgroups below `top`, those of the workload first. A freeze of a cgroup includes its descendants, so the walk
 * descends only into ancestors of cgroups that must keep running: the daemon's own, and those above.
 */
export function* hierarchyCandidates(
  top: Cgroup,
  own: Cgroup,
  workload: readonly Cgroup[],
): Generator<Candidate> {
  for (const cgroup of workload) yield { cgroup, keep: false };
  const seen = new Set(workload.map(({ path }) => path));
  const kept = new Set(RESUME_DEPENDS_ON.map((name) => top.child(name).path));
  const chain = new Set([...chainOf(own.path), ...[...kept].flatMap((path) => chainOf(dirname(path)))]);
  const queue = [top];
  for (let cgroup = queue.shift(); cgroup; cgroup = queue.shift()) {
    for (const child of cgroup.children()) {
      if (seen.has(child.path)) continue;
      const inChain = chain.has(child.path);
      yield { cgroup: child, keep: inChain || kept.has(child.path) };
      if (inChain) queue.push(child);
    }
  }
}

/** Returns `path` and all its ancestors. */
function chainOf(path: string): string[] {
  const parent = dirname(path);
  return parent === path ? [path] : [path, ...chainOf(parent)];
}
