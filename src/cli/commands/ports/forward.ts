import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { finished } from 'node:stream/promises';
import type { Connection } from '../../connection/connection.ts';
import { askState } from '../../connection/daemon-state.ts';
import { openTunnel, type Tunnel } from '../../connection/tunnel.ts';
import { Failure, usageError } from '../../output/failure.ts';
import type { Call } from '../spec/call.ts';
import { defineCommand } from '../spec/command.ts';

interface ForwardOptions {
  readonly stdio?: boolean;
}

export const forwardCommand = defineCommand<ForwardOptions>({
  name: 'forward',
  summary: "Reach ports of the sandbox' localhost from this machine",
  examples: ['envctl forward 8080:80', 'envctl forward --stdio 22'],
  details: [
    'Listens on this machine and forwards each connection to a port of 127.0.0.1 or ::1 in the sandbox. It goes on until it is ended.',
    "With --stdio, standard input and output are the connection: ssh -o ProxyCommand='envctl forward --stdio %p' user@sandbox.",
  ],
  arguments: [
    {
      name: 'forward',
      help: 'REMOTE, LOCAL:REMOTE, or ADDRESS:LOCAL:REMOTE; the local port 0 is any free one',
      isVariadic: true,
    },
  ],
  options: [{ flags: '--stdio', help: 'forward standard input and output to one port' }],
  json: 'one line per forward: {"address","local","remote"}',
  async run(call, { stdio }) {
    const forwards = call.arguments.map(readForward);
    const connection = await call.connection();
    if (stdio) return forwardStdio(call, connection);
    const { abilities } = await askState(connection);
    if (!abilities.ports?.available)
      throw new Failure('failed', `${connection.target.name} does not offer tunnels`);
    const servers = forwards.map(({ remote }) => serverOf(call, connection, remote));
    for (const [index, { address, local, remote }] of forwards.entries()) {
      const port = await listen(servers[index] as Server, address, local);
      await call.output.result({ address, local: port, remote }, () =>
        call.output.line(`${address.includes(':') ? `[${address}]` : address}:${port} -> ${remote}`),
      );
    }
    await Promise.all(servers.map((server) => once(server, 'close')));
    return 0;
  },
});

interface ForwardedTo {
  readonly address: string;
  readonly local: number;
  readonly remote: number;
}

/** Throws `usage`. */
function readForward(text: string): ForwardedTo {
  const [, address = '127.0.0.1', local, remote] =
    /^(?:(?:(\[[\da-f:]+\]|[^:[\]]+):)?(\d{1,5}):)?(\d{1,5})$/i.exec(text) ?? [];
  const ports = [Number(local ?? remote), Number(remote)];
  const [from = 0, to = 0] = ports;
  if (remote === undefined || from > 65_535 || to > 65_535 || to === 0)
    throw usageError(`'${text}' is no forward: give REMOTE, LOCAL:REMOTE or ADDRESS:LOCAL:REMOTE`);
  return { address: address.replace(/^\[|\]$/g, ''), local: from, remote: to };
}

async function listen(server: Server, host: string, port: number): Promise<number> {
  server.listen({ host, port });
  await once(server, 'listening').catch((error: NodeJS.ErrnoException) => {
    throw new Failure('failed', `cannot listen at port ${port} of ${host}: ${error.code}`);
  });
  const place = server.address();
  return typeof place === 'object' && place ? place.port : port;
}

function serverOf(call: Call, connection: Connection, remote: number): Server {
  return createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, (socket) => {
    socket.on('error', () => {});
    void carry(connection, socket, remote).then((failure) => {
      if (failure) call.output.warn(`port ${remote}: ${failure.message}`);
    });
  });
}

/** Carries one connection. Resolves at its end, with what has gone wrong, or null. */
async function carry(connection: Connection, socket: Socket, remote: number): Promise<Failure | null> {
  let tunnel: Tunnel;
  try {
    tunnel = await openTunnel(connection, remote);
  } catch (error) {
    socket.resetAndDestroy();
    if (error instanceof Failure) return error;
    throw error;
  }
  const { stream, closed } = tunnel;
  socket.once('close', () => stream.destroy());
  if (socket.destroyed) stream.destroy();
  sendFrom(socket, stream);
  stream.pipe(socket, { end: false });
  const failure = await closed;
  if (socket.destroyed) return null;
  // What has come is passed on before the end.
  await finished(stream, { writable: false }).catch(() => {});
  if (failure) socket.resetAndDestroy();
  else socket.end();
  return failure;
}

/** Sends what comes, and its end, which is an empty message. */
function sendFrom(source: NodeJS.ReadableStream, stream: Duplex): void {
  source.once('end', () => stream.write(Buffer.alloc(0)));
  source.pipe(stream, { end: false });
}

async function showAll(call: Call, stream: Duplex): Promise<void> {
  for await (const piece of stream) await call.output.raw(piece as Buffer);
}

async function forwardStdio(call: Call, connection: Connection): Promise<number> {
  if (call.arguments.length !== 1 || !/^\d+$/.test(call.argument(0)))
    throw usageError('--stdio needs one port of the sandbox');
  const { stream, closed } = await openTunnel(connection, Number(call.argument(0)));
  sendFrom(call.surroundings.stdin, stream);
  // What has broken the tunnel is told by its close.
  const shown = showAll(call, stream).catch(() => {});
  const failure = await closed;
  await shown;
  if (failure) throw failure;
  return 0;
}
