import {
  DEFAULT_PATH,
  type Invocation,
  LOG_LEVEL,
  type LogLevel,
  matching,
  nonEmpty,
  type Program,
  parseCount,
  parsePath,
  parsePort,
  parseSeconds,
  parseUrl,
  readSettings,
} from '../base/settings.ts';
import { packageVersion } from '../base/version.ts';
import { OUTCOMES, type Outcome } from './leases/sandbox.ts';

/** Everything that can be set from outside, validated; nothing else of the gateway reads argv or the environment. */
export interface Config {
  /** 0: a free one. */
  readonly port: number;
  readonly host: string;
  /** What the two headers that name a sandbox begin with. */
  readonly headerPrefix: string;
  /** Opens the platform operations. */
  readonly apiKey: string;
  /** The file of the embedded registry; null with Redis. */
  readonly registry: string | null;
  /** The Redis server that holds the registry; null without. */
  readonly redis: string | null;
  /** A command for the shell, or a URL; null: nobody is told of an expiry. */
  readonly hook: string | null;
  /** A hook that takes longer has failed, in seconds. */
  readonly hookTimeout: number;
  /** Where the runs of hooks are kept, so that none is run twice. */
  readonly hookDirectory: string;
  /** The most requests that may be in flight to one sandbox. */
  readonly maxRequests: number;
  readonly onExpiry: Outcome;
  /** The time to live of a sandbox that is registered without one, in seconds. */
  readonly defaultTimeout: number;
  readonly logLevel: LogLevel;
  /** PATH of the gateway, and so of the hook. */
  readonly path: string;
  readonly version: string;
}

const DEFAULT_REGISTRY = '/var/lib/envd-gateway/registry.db';

/** What is read from the flags; one without a default may be absent. */
type Settings = Omit<Config, 'version' | 'path' | 'registry' | 'redis' | 'hook'> & {
  readonly registry?: string;
  readonly redis?: string;
  readonly hook?: string;
};

const SETTINGS: Program['settings'] = [
  { flags: '--port <number>', help: 'port to listen on', parse: parsePort, standard: 49980 },
  { flags: '--host <address>', help: 'address to listen on', parse: nonEmpty, standard: '0.0.0.0' },
  { flags: '--api-key <key>', help: 'opens the platform operations', parse: nonEmpty, mandatory: true },
  {
    ...{ flags: '--header-prefix <name>', help: 'of -Sandbox-Id and -Sandbox-Port', standard: 'Svc' },
    parse: matching(
      /^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$/,
      'It must be letters and digits, as headers begin with.',
    ),
  },
  LOG_LEVEL,
  {
    ...{ flags: '--registry <file>', help: `the embedded registry, ${DEFAULT_REGISTRY} unless told` },
    ...{ parse: parsePath, conflicts: 'redis' },
  },
  {
    ...{ flags: '--redis <url>', help: 'the registry that several gateways share' },
    parse: parseUrl(['redis:', 'rediss:'], 'allowed', 'It must be a redis:// or rediss:// URL.'),
  },
  {
    ...{ flags: '--max-requests <number>', help: 'the most requests in flight to one sandbox' },
    ...{ parse: parseCount, standard: 4096 },
  },
  { flags: '--hook <command|url>', help: 'told of a sandbox that has expired', parse: nonEmpty },
  {
    ...{ flags: '--hook-timeout <seconds>', help: 'a hook that takes longer has failed' },
    ...{ parse: parseSeconds, standard: 60 },
  },
  {
    ...{ flags: '--hook-directory <path>', help: 'what hooks were run, and how they ended' },
    ...{ parse: parsePath, standard: '/var/lib/envd-gateway/hooks' },
  },
  {
    ...{ flags: '--on-expiry <outcome>', help: 'what the hook does to a sandbox' },
    ...{ choices: OUTCOMES, standard: 'pause' },
  },
  {
    ...{ flags: '--default-timeout <seconds>', help: 'time to live unless told' },
    ...{ parse: parseSeconds, standard: 300 },
  },
];

/** Reads argv (without node and script) and the environment; a flag goes before its `ENVD_GATEWAY_*` variable. */
export function readConfig(
  argv: readonly string[] = process.argv.slice(2),
  env = process.env,
): Invocation<Config> {
  const version = packageVersion();
  const program: Program = {
    name: 'envd-gateway',
    description: 'One host for many sandboxes, and a time to live for each of them.',
    version: [version, 'print the version'],
    prefix: 'ENVD_GATEWAY_',
    settings: SETTINGS,
  };
  const read = readSettings<Settings>(program, argv, env);
  if (!('settings' in read)) return read;
  const { registry, redis = null, hook = null, ...settings } = read.settings;
  const config: Config = {
    ...settings,
    ...{ redis, hook, version, path: env.PATH || DEFAULT_PATH },
    registry: redis === null ? (registry ?? DEFAULT_REGISTRY) : null,
  };
  return { run: Object.freeze(config) };
}
