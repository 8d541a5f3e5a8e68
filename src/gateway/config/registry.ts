import {
  parseDigit,
  parseList,
  parsePath,
  parseUrl,
  parseWaitOrNone,
  type Setting,
  setting,
} from '../../base/program/settings.ts';

/** The place where the records of sandboxes are kept. */
export interface RegistryPlace {
  /** The path of the embedded registry; null if Redis holds the records. */
  readonly registry: string | null;
  /** The URL of the Redis server that holds the records, or null. With Sentinels, its host is the name of the master. */
  readonly redis: string | null;
  /** The URLs of the Sentinels that know the master; null without Sentinels. */
  readonly redisSentinels: readonly string[] | null;
  /** `HOST:PORT` of nodes of the cluster that holds the records; null without a cluster. */
  readonly redisCluster: readonly string[] | null;
  /** At least this many replicas must have a change before it is answered. */
  readonly redisReplicas: number;
}

export interface RegistryConfig extends RegistryPlace {
  /** A start waits for Redis for this time, in seconds. */
  readonly redisWait: number;
}

const DEFAULT_REGISTRY = '/var/lib/envd-gateway/registry.db';
const SENTINEL_PORT = '26379';
const REDIS_PORT = '6379';

/** These settings have no default. */
export const OPTIONAL_REGISTRY = { redis: null, redisSentinels: null, redisCluster: null } as const;

/** The flags for the registry. */
export const REGISTRY_SETTINGS: readonly Setting[] = [
  {
    flags: '--registry <file>',
    help: `file of the embedded registry (default: ${DEFAULT_REGISTRY})`,
    parse: parsePath,
    conflicts: 'redis',
  },
  setting(
    '--redis <url>',
    'Redis server with the records, which several gateways can share',
    parseUrl(['redis:', 'rediss:'], 'allowed', 'It must be a redis:// or rediss:// URL.'),
  ),
  setting(
    '--redis-sentinels <list>',
    "HOST:PORT of Sentinels, or redis:// URLs; the host of --redis is the master's name",
    parseList(readSentinel, 'It must be HOST:PORT or redis:// URLs, separated by commas.'),
  ),
  {
    flags: '--redis-cluster <list>',
    help: 'HOST:PORT of nodes of the cluster; user, password and scheme come from --redis',
    parse: parseList(readNode, 'It must be HOST:PORT, separated by commas.'),
    conflicts: 'redisSentinels',
  },
  setting(
    '--redis-replicas <number>',
    'minimum number of replicas with a change before it is answered (default: 1 with Sentinels or a cluster, else 0)',
    parseDigit,
  ),
  setting(
    '--redis-wait <seconds>',
    'time that a start waits for Redis, the Sentinels or the cluster',
    parseWaitOrNone,
    30,
  ),
];

/** Adds defaults. Returns an error message if a flag is missing that another one needs. */
export function readRegistry(given: {
  readonly redis: string | null;
  readonly redisSentinels: readonly string[] | null;
  readonly redisCluster: readonly string[] | null;
  readonly redisReplicas?: number;
  readonly registry?: string | null;
}): RegistryPlace | string {
  const { redis, redisSentinels, redisCluster, redisReplicas, registry } = given;
  if (redisSentinels !== null && redis === null)
    return "option '--redis-sentinels <list>' needs '--redis <url>'";
  if (redisCluster !== null && redis === null) return "option '--redis-cluster <list>' needs '--redis <url>'";
  if (redisReplicas !== undefined && redis === null)
    return "option '--redis-replicas <number>' needs '--redis <url>'";
  return {
    registry: redis === null ? (registry ?? DEFAULT_REGISTRY) : null,
    redis,
    redisSentinels,
    redisCluster,
    // Only Sentinels and clusters promote a replica to master.
    redisReplicas: redisReplicas ?? (redisSentinels === null && redisCluster === null ? 0 : 1),
  };
}

/** Returns the URL of a Sentinel, with a port; null if the text is malformed. */
function readSentinel(text: string): string | null {
  const url = URL.parse(/^rediss?:\/\//.test(text) ? text : `redis://${text}`);
  if (!url || url.hostname === '' || /^\/?$/.test(url.pathname) === false) return null;
  url.port ||= SENTINEL_PORT;
  return url.href;
}

/** Returns `HOST:PORT`, with the usual port if none is given; null if the text is malformed. */
function readNode(text: string): string | null {
  const url = URL.parse(`redis://${text}`);
  if (!url || url.hostname === '' || url.host !== text.toLowerCase()) return null;
  url.port ||= REDIS_PORT;
  return url.host;
}
