import { createClient } from '@redis/client';
import { EnvdError } from '../../base/errors.ts';
import { SCRIPTS } from './redis-scripts.ts';

export const CONNECT_TIMEOUT_MS = 5000;
/** A connection on which nothing is sent or received for so long is made anew; something is sent more often. */
const SILENT_MS = 5000;
/** The oldest version that has all commands: SET with NX and GET. */
const OLDEST_MAJOR = 7;

export function makeClient(url: string) {
  return createClient({
    url,
    scripts: SCRIPTS,
    // With RESP 3, replies and messages come on one connection, in one order.
    RESP: 3,
    disableOfflineQueue: true,
    pingInterval: SILENT_MS / 2,
    socket: { connectTimeout: CONNECT_TIMEOUT_MS, socketTimeout: SILENT_MS, reconnectStrategy: false },
  });
}

export type RedisClient = ReturnType<typeof makeClient>;

/** Throws `invalid_argument` for a server that cannot keep the registry, from what INFO says of it. */
export function checkServer(info: string, isCluster: boolean): void {
  const read = (name: string) => new RegExp(`^${name}:([^\\r\\n]*)`, 'm').exec(info)?.[1] ?? '';
  const [version, mode, role] = ['redis_version', 'redis_mode', 'role'].map(read);
  if (Number.parseInt(version ?? '', 10) < OLDEST_MAJOR)
    refuse(`it is Redis ${version}, and version ${OLDEST_MAJOR} or later is needed`);
  if (mode === 'sentinel') refuse('it is a Sentinel, which --redis-sentinels is for');
  if (mode === 'cluster' && !isCluster) refuse('it is a node of a cluster, which --redis-cluster is for');
  // With any other policy Redis would remove records of sandboxes when its memory is full.
  if (Number(read('maxmemory')) > 0 && read('maxmemory_policy') !== 'noeviction')
    refuse(`its maxmemory-policy is ${read('maxmemory_policy')}, and must be noeviction`);
  if (role === 'slave') throw new EnvdError('unavailable', 'the server of the registry is a replica');
}

function refuse(reason: string): never {
  throw new EnvdError('invalid_argument', `the server of the registry cannot be used: ${reason}`);
}
