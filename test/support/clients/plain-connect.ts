import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { compressionGzip, connectNodeAdapter } from '@connectrpc/connect-node';
import { filesystemRpcs } from '../../../src/daemon/http/rpc/filesystem.ts';
import { UserDatabase } from '../../../src/daemon/linux/system/users.ts';
import { Guest } from '../../../src/daemon/services/guest/guest.ts';
import { WriteGate } from '../../../src/daemon/services/pause/write-gate.ts';
import { testLanes } from '../services/lanes.ts';
import { addPlainRpcs } from './plain-rpcs.ts';

/** The unary calls of Filesystem as connect-node alone answers them. */
export interface PlainServer {
  readonly url: string;
  close(): void;
}

export async function startPlain(): Promise<PlainServer> {
  const users = new UserDatabase();
  const entries = { users, lanes: testLanes, metadataPrefix: 'user.svc.' };
  const guest = new Guest(users);
  guest.defaultUser = 'root';
  const rpcs = filesystemRpcs({ guest, entries, gate: new WriteGate() });
  const adapter = connectNodeAdapter({
    acceptCompression: [compressionGzip],
    routes: (router) => addPlainRpcs(router, rpcs),
  });
  const server = createServer(adapter).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => server.close() };
}
