import type { Connection } from './connection.ts';

/** A daemon describes itself with these members. A member is null if the daemon does not send it. */
export interface DaemonState {
  readonly version: string | null;
  readonly interface: string | null;
  readonly since: string | null;
  readonly frozen: { readonly workload: boolean; readonly filesystem: boolean } | null;
  readonly abilities: Readonly<
    Record<string, { readonly available: boolean; readonly reason: string | null }>
  >;
  /** True if the daemon has the extensions of envd: archives, conditions of uploads, and resumed output. */
  readonly hasExtensions: boolean;
  /**
   * The clock of this machine is ahead of the daemon's by this time, in milliseconds, to about a second. It is null if
   * unknown.
   */
  readonly clockAheadMs: number | null;
  /** The duration of the call, in milliseconds. */
  readonly roundTripMs: number;
}

/** Asks a daemon for its state. A daemon that knows only the published interface answers without a body. Throws `Failure`. */
export async function askState({ http }: Pick<Connection, 'http'>): Promise<DaemonState> {
  const before = Date.now();
  const started = performance.now();
  const response = await http.send({ path: '/health', query: { verbose: '1' } });
  const roundTripMs = performance.now() - started;
  const text = await readSmall(response);
  const said = objectIn(text);
  const date = Date.parse(response.headers.date ?? '');
  // The header has whole seconds, so on average it is half a second behind.
  const clockAheadMs = Number.isNaN(date) ? null : Math.round(before + roundTripMs / 2 - (date + 500));
  const frozen = recordOf(said.frozen);
  return {
    version: textOrNull(said.version),
    interface: textOrNull(said.interface),
    since: textOrNull(said.since),
    frozen: frozen && { workload: frozen.workload === true, filesystem: frozen.filesystem === true },
    abilities: abilitiesOf(recordOf(said.abilities) ?? {}),
    hasExtensions: typeof said.version === 'string' && recordOf(said.abilities) !== null,
    clockAheadMs,
    roundTripMs,
  };
}

async function readSmall(response: AsyncIterable<Buffer> & { destroy(): unknown }): Promise<string> {
  let text = '';
  for await (const piece of response) {
    text += piece.toString('latin1');
    if (text.length > 256 * 1024) response.destroy();
  }
  return Buffer.from(text, 'latin1').toString();
}

function objectIn(text: string): Readonly<Record<string, unknown>> {
  try {
    return recordOf(JSON.parse(text)) ?? {};
  } catch {
    return {};
  }
}

function abilitiesOf(said: Readonly<Record<string, unknown>>): DaemonState['abilities'] {
  const entries = Object.entries(said).map(([name, value]) => {
    const { available, reason } = recordOf(value) ?? {};
    return [name, { available: available === true, reason: textOrNull(reason) }] as const;
  });
  return Object.fromEntries(entries);
}

function recordOf(value: unknown): Readonly<Record<string, unknown>> | null {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : null;
}

function textOrNull(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}
