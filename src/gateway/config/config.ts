import {
  DEFAULT_PATH,
  grouped,
  type Invocation,
  LOG_LEVEL,
  type LogLevel,
  matching,
  nonEmpty,
  type Program,
  parseCount,
  parseDomain,
  parseLifetime,
  parseList,
  parsePath,
  parsePort,
  parseWait,
  parseWaitOrNone,
  readSettings,
  type Setting,
  setting,
} from '../../base/program/settings.ts';
import { packageVersion } from '../../base/program/version.ts';
import { type AddressRange, type PortRange, readPorts, readRange } from '../access/addresses.ts';
import { faultOfHooks, HOOK_SETTINGS, type HookConfig, OPTIONAL_HOOKS } from './hooks.ts';
import {
  OPTIONAL_REGISTRY,
  REGISTRY_SETTINGS,
  type RegistryConfig,
  type RegistryPlace,
  readRegistry,
} from './registry.ts';
import { OPTIONAL_TRAFFIC, TRAFFIC_SETTINGS, TRUSTED_PROXIES, type TrafficConfig } from './traffic.ts';

/** All validated settings. Nothing else in the gateway reads argv or the environment. */
export interface GatewayConfig extends HookConfig, TrafficConfig, RegistryConfig {
  /** 0 means any free port. */
  readonly port: number;
  readonly host: string;
  /** The prefix of the two headers that name a sandbox. */
  readonly headerPrefix: string;
  /** Hosts below this domain name sandboxes; it is in lower case. If it is null, no host names a sandbox. */
  readonly domain: string | null;
  /** A platform key. If it is null, only the file has keys. */
  readonly apiKey: string | null;
  /** The path of the file with keys of the platform and of clients, or null. */
  readonly keyFile: string | null;
  /** If true, requests to sandboxes need a key too. */
  readonly requireKey: boolean;
  readonly allowAddresses: readonly AddressRange[] | null;
  readonly allowPorts: readonly PortRange[];
  /** At most this many expiries run at the same time, in all and on one host. */
  readonly maxExpiries: number;
  readonly maxExpiriesPerHost: number;
  /** After the first signal, the gateway serves on for this time, in seconds. */
  readonly drain: number;
  /** A sandbox must begin its response within this time, in seconds. */
  readonly responseTimeout: number;
  /** Registrations and refreshes that name no time to live get this one, in seconds. */
  readonly defaultTimeout: number;
  /**
   * A sandbox that is registered without an idle timeout expires after this time without use, in seconds. If it is null, only
   * the deadline counts.
   */
  readonly idleTimeout: number | null;
  readonly logLevel: LogLevel;
  /** Hook commands inherit this PATH of the gateway. */
  readonly path: string;
  readonly version: string;
}

/** Flags without a default have these values when they are not given. */
const NOT_GIVEN = {
  apiKey: null,
  keyFile: null,
  requireKey: false,
  allowAddresses: null,
  domain: null,
  idleTimeout: null,
  ...OPTIONAL_HOOKS,
  ...OPTIONAL_TRAFFIC,
  ...OPTIONAL_REGISTRY,
} as const;

/** The settings that commander returns. */
type Settings = Omit<GatewayConfig, 'version' | 'path' | keyof RegistryPlace | keyof typeof NOT_GIVEN> &
  Partial<GatewayConfig>;

const parsePrefix = matching(
  /^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$/,
  'It must be letters and digits, with single hyphens between them at most, such as Svc.',
);

const BASICS: readonly Setting[] = [
  setting('--port <number>', 'port to listen on; 0: any free port', parsePort, 49980),
  setting('--host <address>', 'address to listen on', nonEmpty, '0.0.0.0'),
  setting(
    '--header-prefix <name>',
    'prefix of the headers -Sandbox-Id and -Sandbox-Port',
    parsePrefix,
    'Svc',
  ),
  setting('--domain <name>', 'domain of hosts that name sandboxes, as in <port>-<id>.<name>', parseDomain),
  LOG_LEVEL,
  setting(
    '--drain <seconds>',
    'time to serve on after SIGTERM, while the health check fails',
    parseWaitOrNone,
    5,
  ),
];

const WHO_AND_WHERE: readonly Setting[] = [
  setting(
    '--api-key <key>',
    'key of the platform; use the variable, because process lists show flags',
    nonEmpty,
  ),
  setting(
    '--key-file <file>',
    'file with keys of the platform and of clients; it is read again when it changes',
    parsePath,
  ),
  { flags: '--require-key', help: 'require a key for requests to sandboxes' },
  setting(
    '--allow-addresses <ranges>',
    'addresses where sandboxes may be, such as 10.0.0.0/8,fd00::/8',
    parseList(readRange, 'It must be IP addresses or ranges of them, separated by commas.'),
  ),
  {
    ...setting(
      '--allow-ports <ranges>',
      'ports of sandboxes that clients may name, such as 80,3000-3999',
      parseList(readPorts, 'It must be ports or ranges of them, separated by commas.'),
      [[1, 65535]],
    ),
    defaultText: '1-65535',
  },
  TRUSTED_PROXIES,
];

const EXPIRY: readonly Setting[] = [
  ...HOOK_SETTINGS,
  setting(
    '--default-timeout <seconds>',
    'time to live of sandboxes that are registered without one',
    parseLifetime,
    300,
  ),
  setting(
    '--idle-timeout <seconds>',
    'time without use after which a sandbox expires; default: never',
    parseLifetime,
  ),
  setting('--max-expiries <number>', 'maximum number of expiries at a time', parseCount, 128),
  setting(
    '--max-expiries-per-host <number>',
    'maximum number of expiries at a time on one host',
    parseCount,
    16,
  ),
];

const RESPONSE_TIMEOUT = setting(
  '--response-timeout <seconds>',
  'time limit for a sandbox to begin its response',
  parseWait,
  600,
);

const SETTINGS: Program['settings'] = [
  ...grouped('Basics', BASICS),
  ...grouped('Who and where', WHO_AND_WHERE),
  ...grouped('Limits', [...TRAFFIC_SETTINGS, RESPONSE_TIMEOUT]),
  ...grouped('Expiry and hooks', EXPIRY),
  ...grouped('Registry', REGISTRY_SETTINGS),
];

/** Describes the command line of the gateway: its flags, their help and their variables. */
export function gatewayProgram(): Program {
  return {
    name: 'envd-gateway',
    description: 'Forwards requests to many sandboxes, and expires each sandbox at its deadline.',
    version: [packageVersion(), 'print the version'],
    prefix: 'ENVD_GATEWAY_',
    settings: SETTINGS,
  };
}

/**
 * Reads argv (without node and script) and the environment. A flag overrides its `ENVD_GATEWAY_*` variable. Returns the
 * configuration, or the output to print for `--help`, `--version` and errors.
 */
export function readGatewayConfig(
  argv: readonly string[] = process.argv.slice(2),
  env = process.env,
): Invocation<GatewayConfig> {
  const program = gatewayProgram();
  const [version] = program.version;
  const read = readSettings<Settings>(program, argv, env);
  if (!('settings' in read)) return read;
  const settings = { ...NOT_GIVEN, ...read.settings };
  const { apiKey, keyFile } = settings;
  if (apiKey === null && keyFile === null) {
    return {
      exitCode: 2,
      output: "error: no key is set: one of '--api-key <key>' and '--key-file <file>' must be given\n",
    };
  }
  const registry = readRegistry(settings);
  const fault = typeof registry === 'string' ? registry : faultOfHooks(settings);
  if (typeof registry === 'string' || fault !== null) return { exitCode: 2, output: `error: ${fault}\n` };
  const config: GatewayConfig = {
    ...settings,
    version,
    path: env.PATH || DEFAULT_PATH,
    ...registry,
  };
  return { run: Object.freeze(config) };
}
