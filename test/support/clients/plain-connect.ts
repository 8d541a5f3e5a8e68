import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { compressionBrotli, compressionGzip, connectNodeAdapter } from '@connectrpc/connect-node';
import { toConnectError } from '../../../src/daemon/http/connect/errors.ts';
import { filesystemService } from '../../../src/daemon/http/rpc/filesystem.ts';
import { UserDatabase } from '../../../src/daemon/linux/system/users.ts';
import { Guest } from '../../../src/daemon/services/guest/guest.ts';
import { WriteGate } from '../../../src/daemon/services/pause/write-gate.ts';
import { Filesystem } from '../../../src/gen/filesystem/filesystem_pb.js';
import { testLanes } from '../services/lanes.ts';

/** The unary calls of Filesystem as connect-node alone answers them. */
export interface PlainServer {
  readonly url: string;
  close(): void;
}

export async function startPlain(): Promise<PlainServer> {
  const users = new UserDatabase();
  const userOf = () => ({ uid: 0, gid: 0, name: 'root', home: '/root', groups: [0], shell: '/bin/sh' });
  const entries = { users, lanes: testLanes, metadataPrefix: 'user.svc.' };
  const service = filesystemService({ guest: new Guest(users), entries, gate: new WriteGate(), userOf });
  const adapter = connectNodeAdapter({
    acceptCompression: [compressionGzip, compressionBrotli],
    routes: (router) => router.service(Filesystem, service, { jsonOptions: { ignoreUnknownFields: false } }),
    interceptors: [
      (next) => (call) => next(call).catch((error: unknown) => Promise.reject(toConnectError(error))),
    ],
  });
  const server = createServer(adapter).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => server.close() };
}
