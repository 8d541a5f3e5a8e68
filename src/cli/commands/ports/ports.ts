import type { Readable } from 'node:stream';
import type { Connection } from '../../connection/connection.ts';
import { Failure } from '../../output/failure.ts';
import type { Call } from '../spec/call.ts';
import { defineCommand } from '../spec/command.ts';

interface PortsOptions {
  readonly watch?: boolean;
}

/** No client waits so long for the next line of a stream that has none. */
const NO_LIMIT_MS = 0;
/** A line of that stream may have this many characters. */
const MAX_LINE = 64 * 1024;

export const portsCommand = defineCommand<PortsOptions>({
  name: 'ports',
  summary: 'List the ports that processes listen at',
  examples: ['envctl ports', 'envctl ports --watch'],
  details: [
    "A port of localhost is forwarded to the guest's address, if the daemon does that; others are reachable there anyway.",
    'With --watch, prints a line for each port of localhost that a process listens at, and for each that appears or disappears, with the process and its user.',
  ],
  arguments: [],
  options: [{ flags: '-w, --watch', help: 'all ports now, and what changes' }],
  json: '{"address","ports":[{"port","address","user","pid","command","forwarded","connections"}]}; with --watch one line per change: {"type":"appear"|"disappear","port","address","user","pid","command"}',
  async run(call, { watch }) {
    const connection = await call.connection();
    return watch ? follow(call, connection) : list(call, connection);
  },
});

async function list(call: Call, connection: Connection): Promise<number> {
  const { address, ports: forwards } = portsIn(await connection.http.json({ path: '/ports' }));
  const listeners = await listenersOf(connection);
  const known = new Set(listeners.map(({ port }) => port));
  const others = forwards
    .filter(({ port }) => !known.has(port))
    .map(({ port, target }) => ({ ...UNKNOWN, port, address: target }));
  const ports = [...listeners, ...others]
    .sort((one, other) => one.port - other.port)
    .map((listener) => {
      const forward = forwards.find(({ port }) => port === listener.port);
      return { ...listener, forwarded: forward !== undefined, connections: forward?.connections ?? null };
    });
  await call.output.result({ address, ports }, () =>
    call.output.table(
      [
        { title: 'PORT', align: 'right' },
        { title: 'LISTENS ON' },
        { title: 'FORWARDED AT' },
        { title: 'CONNECTIONS', align: 'right' },
        { title: 'USER' },
        { title: 'PROCESS' },
      ],
      ports.map(({ port, address: own, forwarded, connections, user, pid, command }) => [
        String(port),
        own,
        forwarded ? `${address}:${port}` : '-',
        connections === null ? '-' : String(connections),
        user ?? '-',
        pid === null ? '-' : `${command ?? '?'} (${pid})`,
      ]),
      { fits: true },
    ),
  );
  return 0;
}

const UNKNOWN = { user: null, pid: null, command: null } as const;

/** The stream tells all listeners at once, and then nothing until one changes: they are complete after this time, in milliseconds. */
const COMPLETE_MS = 150;
/** Where nothing listens, nothing comes. */
const NOTHING_MS = 2000;

/** Returns what listens now, or nothing where the daemon does not tell. Throws `Failure`. */
async function listenersOf(connection: Connection) {
  const left = new AbortController();
  const stream = await connection.http
    .send({ path: '/ports/stream', signal: left.signal })
    .catch((error: unknown) => {
      if (error instanceof Failure && ['failed', 'not_found'].includes(error.reason)) return null;
      throw error;
    });
  const listeners: Omit<NonNullable<ReturnType<typeof changeIn>>, 'type'>[] = [];
  if (stream === null) return listeners;
  let timer: NodeJS.Timeout | undefined;
  const wait = (milliseconds: number) => {
    clearTimeout(timer);
    timer = setTimeout(() => left.abort(), milliseconds);
  };
  wait(NOTHING_MS);
  try {
    for await (const line of linesIn(stream)) {
      wait(COMPLETE_MS);
      const change = changeIn(line);
      if (change?.type !== 'appear') continue;
      const { type: _, ...listener } = change;
      listeners.push(listener);
    }
  } catch (error) {
    if (!left.signal.aborted) throw error;
  } finally {
    clearTimeout(timer);
    stream.destroy();
  }
  return listeners;
}

/** Returns the ports in an answer, without members of an unexpected form. */
function portsIn(value: unknown) {
  const { address, ports } = (value ?? {}) as { address?: unknown; ports?: unknown };
  const known = (Array.isArray(ports) ? ports : []).flatMap((each: Record<string, unknown> | null) => {
    const { port, target, connections } = each ?? {};
    return typeof port === 'number'
      ? [{ port, target: String(target), connections: Number(connections) || 0 }]
      : [];
  });
  return { address: typeof address === 'string' ? address : null, ports: known };
}

async function follow(call: Call, connection: Connection): Promise<number> {
  const response = await connection.http.send({ path: '/ports/stream', silenceMs: NO_LIMIT_MS });
  for await (const line of linesIn(response)) {
    const change = changeIn(line);
    if (change === null) continue;
    const { type, port, address, user, pid, command } = change;
    await call.output.result(change, () =>
      call.output.line(
        { style: type === 'appear' ? 'green' : 'dim', text: type.padEnd(10) },
        `${address}:${port}  ${command ?? '?'} (${pid ?? '?'}), ${user}`,
      ),
    );
  }
  return 0;
}

/** Yields the lines of a stream. Throws a `Failure` for one that does not end. */
async function* linesIn(stream: Readable): AsyncGenerator<string> {
  let rest = '';
  for await (const piece of stream.setEncoding('utf8')) {
    const lines = (rest + piece).split('\n');
    rest = lines.pop() ?? '';
    if (rest.length > MAX_LINE) throw new Failure('failed', 'the daemon sends a line that does not end');
    yield* lines;
  }
}

/** A change of a port; null for a line that is none. */
function changeIn(line: string) {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return null;
  }
  const { type, port, address, user, pid, command } = (value ?? {}) as Readonly<Record<string, unknown>>;
  if (typeof port !== 'number' || (type !== 'appear' && type !== 'disappear')) return null;
  return {
    ...{ type, port, address: String(address), user: String(user) },
    pid: typeof pid === 'number' ? pid : null,
    command: typeof command === 'string' ? command : null,
  };
}
