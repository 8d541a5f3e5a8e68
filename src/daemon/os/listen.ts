import { isIPv4, type Server } from 'node:net';

/** Where to listen: at an address, or on the socket of an earlier program. */
export interface Place {
  readonly host: string;
  readonly port: number;
  /** The descriptor of a socket that is bound already; null: there is none. */
  readonly fd: number | null;
}

/** The step of Node's `listen` that binds and listens, which its type definitions omit. */
interface Listening {
  _listen2(host: string | null, port: number | null, family: 4 | null, backlog?: number, fd?: number): void;
}

/**
 * Lets a server listen, which emits `listening` or `error` then. `server.listen` would ask `node:cluster` first whether this is a worker of
 * one, and loads it and `child_process` for that: a tenth of a start (docs/decisions/073-routes-are-loaded-later.md). Only a host
 * that is no IPv4 address goes that way, for its look-up.
 */
export function listen(server: Server, { host, port, fd }: Place): void {
  const listening = server as unknown as Listening;
  if (fd !== null) listening._listen2(null, null, null, undefined, fd);
  else if (isIPv4(host)) listening._listen2(host, port, 4);
  else server.listen({ host, port });
}
