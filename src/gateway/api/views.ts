import type { measure } from '../expiry/guest.ts';
import type { Resumes } from '../expiry/resumes.ts';
import type { Sandbox } from '../leases/sandbox.ts';
import { isNameable } from '../routes/names.ts';

/** The states that published clients know. */
export const STATES = ['running', 'paused'] as const;
export type State = (typeof STATES)[number];

export interface ViewParts {
  /** The domain of hosts that name sandboxes; null: none. */
  readonly domain: string | null;
  readonly resumes: Pick<Resumes, 'isFor'>;
}

/** Sandboxes as responses show them, with the members that published clients require. */
export class Views {
  readonly #parts: ViewParts;

  constructor(parts: ViewParts) {
    this.#parts = parts;
  }

  /** A sandbox without its token, for lists. */
  of(sandbox: Sandbox) {
    const { id, address, port, metadata, envdVersion, phase, startedAt, deadline, failures } = sandbox;
    const { owner, host, onExpiry, machine, forgetAt, idleTimeout, trafficToken } = sandbox;
    return {
      sandboxID: id,
      state: stateOf(sandbox),
      phase,
      ...descriptionOf(sandbox),
      lifecycle: {
        onTimeout: onExpiry === 'remove' ? 'kill' : 'pause',
        autoResume: this.#parts.resumes.isFor(sandbox),
      },
      address,
      port,
      metadata,
      envdVersion,
      onExpiry,
      domain: isNameable(id) ? this.#parts.domain : null,
      startedAt: new Date(startedAt).toISOString(),
      endAt: new Date(deadline).toISOString(),
      failures,
      ...(idleTimeout !== undefined && { idleTimeout }),
      ...(trafficToken && { network: { allowPublicTraffic: false } }),
      ...(phase === 'paused' && { machinePaused: machine === undefined }),
      ...(phase === 'paused' && forgetAt && { forgetAt: new Date(forgetAt).toISOString() }),
      // Records of earlier versions have no such member.
      ...(owner && { owner }),
      ...(host !== undefined && { host }),
    };
  }

  /** The same with the tokens of the daemon and of the ports, for operations on one sandbox. */
  withToken(sandbox: Sandbox) {
    const { accessToken, trafficToken } = sandbox;
    return {
      ...this.of(sandbox),
      ...(accessToken !== null && { envdAccessToken: accessToken }),
      ...(trafficToken && { trafficAccessToken: trafficToken }),
    };
  }
}

/** Published clients fail without these members, so unknown ones are empty or 0. */
function descriptionOf({ templateID = '', alias, owner, ...sandbox }: Sandbox) {
  const { cpuCount = 0, memoryMB = 0, diskSizeMB = 0 } = sandbox;
  return {
    templateID,
    ...(alias !== undefined && { alias }),
    clientID: owner ?? '',
    cpuCount,
    memoryMB,
    diskSizeMB,
  };
}

/** What a sandbox uses, by the names that published clients know. */
export type SandboxMetric = ReturnType<typeof metricOf>;

/** @param figures the daemon's `GET /metrics` */
export function metricOf(figures: Awaited<ReturnType<typeof measure>>) {
  return {
    timestamp: new Date(figures.ts * 1000).toISOString(),
    timestampUnix: figures.ts,
    cpuCount: figures.cpu_count,
    cpuUsedPct: figures.cpu_used_pct,
    memTotal: figures.mem_total,
    memUsed: figures.mem_used,
    memCache: figures.mem_cache,
    diskTotal: figures.disk_total,
    diskUsed: figures.disk_used,
  };
}

export function stateOf({ phase }: Sandbox): State {
  return phase === 'paused' || phase === 'resuming' ? 'paused' : 'running';
}
