import type { measure } from '../expiry/guest.ts';
import type { Resumes } from '../expiry/resumes.ts';
import type { PauseKeeps, Sandbox } from '../leases/sandbox.ts';
import { isNameable } from '../routes/names.ts';

/** Published clients know these states. */
export const STATES = ['running', 'paused'] as const;
export type State = (typeof STATES)[number];

export interface ViewParts {
  /** The domain of hosts that name sandboxes, or null. */
  readonly domain: string | null;
  readonly resumes: Pick<Resumes, 'isFor'>;
  /** What pauses can keep. */
  readonly pauseKeeps: readonly PauseKeeps[];
}

/** Describes sandboxes in responses, with the members that published clients require. */
export class Views {
  readonly #parts: ViewParts;

  constructor(parts: ViewParts) {
    this.#parts = parts;
  }

  /** Returns the description of a sandbox without its token, for lists. */
  of(sandbox: Sandbox) {
    const { id, address, port, metadata, envdVersion, phase, startedAt, deadline, failures } = sandbox;
    const { owner, host, onExpiry, machine, forgetAt, idleTimeout, trafficToken, maskRequestHost } = sandbox;
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
      pauseKeeps: this.#parts.pauseKeeps,
      domain: isNameable(id) ? this.#parts.domain : null,
      startedAt: new Date(startedAt).toISOString(),
      endAt: new Date(deadline).toISOString(),
      failures,
      ...(idleTimeout !== undefined && { idleTimeout }),
      ...((trafficToken || maskRequestHost) && {
        network: {
          ...(trafficToken && { allowPublicTraffic: false }),
          ...(maskRequestHost && { maskRequestHost }),
        },
      }),
      ...(phase === 'paused' && { machinePaused: machine !== 'frozen', keptMemory: machine !== 'disk' }),
      ...(phase === 'paused' && forgetAt && { forgetAt: new Date(forgetAt).toISOString() }),
      // Records of earlier versions have no owner.
      ...(owner && { owner }),
      ...(host !== undefined && { host }),
    };
  }

  /** Returns the description with the tokens of the daemon and of the ports, for operations on one sandbox. */
  withToken(sandbox: Sandbox) {
    const { accessToken, trafficToken } = sandbox;
    return {
      ...this.of(sandbox),
      ...(accessToken !== null && { envdAccessToken: accessToken }),
      ...(trafficToken && { trafficAccessToken: trafficToken }),
    };
  }
}

/** Returns members without which published clients fail. Unknown ones are therefore empty or 0. */
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

/** The use of resources of a sandbox, with the names that published clients know. */
export type SandboxMetric = ReturnType<typeof metricOf>;

/** Translates the response of the daemon's `GET /metrics` into the names that published clients know. */
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

/** Returns the state that published clients know for a phase. */
export function stateOf({ phase }: Sandbox): State {
  return phase === 'paused' || phase === 'resuming' ? 'paused' : 'running';
}
