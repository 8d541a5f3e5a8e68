import { createClient } from '@redis/client';
import { EnvdError } from '../../base/errors.ts';
import { SCRIPTS } from './redis-scripts.ts';

/** A connection must be ready within this time, in ms. */
export const CONNECT_TIMEOUT_MS = 5000;
/** A connection without traffic for this time is replaced, in ms. A healthy one has traffic more often, because of pings. */
const SILENT_MS = 5000;
/** This is the oldest version with all commands that are used, such as SET with NX and GET. */
const OLDEST_MAJOR = 7;

/** Returns a client that is not connected yet. It does not reconnect by itself. */
export function makeClient(url: string) {
  return createClient({
    url,
    scripts: SCRIPTS,
    // With RESP 3, replies and messages arrive on one connection, in one order.
    RESP: 3,
    disableOfflineQueue: true,
    pingInterval: SILENT_MS / 2,
    socket: { connectTimeout: CONNECT_TIMEOUT_MS, socketTimeout: SILENT_MS, reconnectStrategy: false },
  });
}

export type RedisClient = ReturnType<typeof makeClient>;

/**
 * Throws `invalid_argument` for a server that cannot keep the registry, and `unavailable` for a replica. `info` is its reply
 * to INFO.
 */
export function checkServer(info: string, isCluster: boolean): void {
  const [version, mode, role] = ['redis_version', 'redis_mode', 'role'].map((name) => readInfo(info, name));
  if (Number.parseInt(version ?? '', 10) < OLDEST_MAJOR)
    refuse(`it is Redis ${version}, but version ${OLDEST_MAJOR} or later is needed`);
  if (mode === 'sentinel') refuse('it is a Sentinel: name it in --redis-sentinels');
  if (mode === 'cluster' && !isCluster) refuse('it is a node of a cluster: name it in --redis-cluster');
  const fault = evictionFault(info);
  if (fault !== null) refuse(fault);
  if (role === 'slave')
    throw new EnvdError('unavailable', 'the server of the registry is a replica, not the master');
}

/** Returns a member of a reply to INFO, or '' if it is missing. */
export function readInfo(info: string, name: string): string {
  return new RegExp(`^${name}:([^\\r\\n]*)`, 'm').exec(info)?.[1] ?? '';
}

/** Returns why a server would remove records of sandboxes when its memory is full, or null if it would not. */
export function evictionFault(info: string): string | null {
  const policy = readInfo(info, 'maxmemory_policy');
  if (Number(readInfo(info, 'maxmemory')) === 0 || policy === 'noeviction') return null;
  return `its maxmemory-policy is ${policy}: set it to noeviction`;
}

function refuse(reason: string): never {
  throw new EnvdError('invalid_argument', `the server of the registry cannot be used: ${reason}`);
}
