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
  summary: "List the localhost ports that are reachable at the guest's address",
  details: [
    'With --watch, prints a line for each port of localhost that a process listens at, and for each that appears or disappears, with the process and its user.',
  ],
  arguments: [],
  options: [{ flags: '-w, --watch', help: 'all ports of localhost, and what changes' }],
  json: '{"address","ports":[{"port","target","connections"}]}; with --watch one line per change: {"type":"appear"|"disappear","port","address","user","pid","command"}',
  async run(call, { watch }) {
    const connection = await call.connection();
    return watch ? follow(call, connection) : list(call, connection);
  },
});

async function list(call: Call, connection: Connection): Promise<number> {
  const { address, ports } = portsIn(await connection.http.json({ path: '/ports' }));
  await call.output.result({ address, ports }, async () => {
    if (address === null) return call.output.note('nothing is forwarded in this guest');
    await call.output.table(
      [
        { title: 'PORT', align: 'right' },
        { title: 'AT' },
        { title: 'LISTENS ON' },
        { title: 'CONNECTIONS', align: 'right' },
      ],
      ports.map(({ port, target, connections }) => [
        String(port),
        `${address}:${port}`,
        target,
        String(connections),
      ]),
    );
  });
  return 0;
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
