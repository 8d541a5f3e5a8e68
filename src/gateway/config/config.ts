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
  parseList,
  parsePath,
  parsePort,
  parseSeconds,
  parseWholeSeconds,
  readSettings,
  type Setting,
  setting,
} from '../../base/program/settings.ts';
import { packageVersion } from '../../base/program/version.ts';
import { type AddressRange, type PortRange, readPorts, readRange } from '../access/addresses.ts';
import { HOOK_SETTINGS, type HookConfig, OPTIONAL_HOOKS } from './hooks.ts';
import {
  OPTIONAL_REGISTRY,
  REGISTRY_SETTINGS,
  type RegistryConfig,
  type RegistryPlace,
  readRegistry,
} from './registry.ts';
import { OPTIONAL_TRAFFIC, TRAFFIC_SETTINGS, TRUSTED_PROXIES, type TrafficConfig } from './traffic.ts';

/** All settings, validated; nothing else in the gateway reads argv or the environment. */
export interface GatewayConfig extends HookConfig, TrafficConfig, RegistryConfig {
  /** 0: any free port. */
  readonly port: number;
  readonly host: string;
  /** The prefix of the two headers that name a sandbox. */
  readonly headerPrefix: string;
  /** The domain of hosts that name sandboxes, in lower case; null: hosts name none. */
  readonly domain: string | null;
  /** A platform key; null: only those of the file. */
  readonly apiKey: string | null;
  /** The file with keys of the platform and of clients; null: none. */
  readonly keyFile: string | null;
  /** Whether requests to sandboxes need a key, too. */
  readonly requireKey: boolean;
  readonly allowAddresses: readonly AddressRange[] | null;
  readonly allowPorts: readonly PortRange[];
  /** The most concurrent expiries, in all and on one host. */
  readonly maxExpiries: number;
  readonly maxExpiriesPerHost: number;
  /** How long everything is still served after the first signal, in seconds. */
  readonly drain: number;
  /** How long a sandbox may take to respond, in seconds. */
  readonly responseTimeout: number;
  /** For registrations and refreshes without a time to live, in seconds. */
  readonly defaultTimeout: number;
  /** The time without use after which sandboxes expire that are registered without one, in seconds; null: only deadlines count. */
  readonly idleTimeout: number | null;
  readonly logLevel: LogLevel;
  /** The gateway's PATH, which hook commands inherit. */
  readonly path: string;
  readonly version: string;
}

/** The values of flags without a default when they are not given. */
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

/** What is read from the flags. */
type Settings = Omit<GatewayConfig, 'version' | 'path' | keyof RegistryPlace | keyof typeof NOT_GIVEN> &
  Partial<GatewayConfig>;

const parsePrefix = matching(
  /^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$/,
  'It must be letters and digits, as headers begin with.',
);

const BASICS: readonly Setting[] = [
  setting('--port <number>', 'port to listen on', parsePort, 49980),
  setting('--host <address>', 'address to listen on', nonEmpty, '0.0.0.0'),
  setting('--header-prefix <name>', 'prefix of -Sandbox-Id and -Sandbox-Port', parsePrefix, 'Svc'),
  setting('--domain <name>', 'hosts name sandboxes, too: <port>-<id>.<name>', parseDomain),
  LOG_LEVEL,
  setting(
    '--drain <seconds>',
    'time that is served on after SIGTERM, with health turned',
    parseWholeSeconds,
    5,
  ),
];

const WHO_AND_WHERE: readonly Setting[] = [
  setting('--api-key <key>', 'key of the platform', nonEmpty),
  setting('--key-file <file>', 'keys of the platform and of clients, read again when it changes', parsePath),
  { flags: '--require-key', help: 'requests to sandboxes need a key, too' },
  setting(
    '--allow-addresses <ranges>',
    'where sandboxes may be, such as 10.0.0.0/8,fd00::/8',
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
  setting('--default-timeout <seconds>', 'time to live of registrations without one', parseSeconds, 300),
  setting('--idle-timeout <seconds>', 'time without use after which a sandbox expires', parseSeconds),
  setting('--max-expiries <number>', 'limit of expiries at a time', parseCount, 128),
  setting('--max-expiries-per-host <number>', 'limit of expiries at a time on one host', parseCount, 16),
];

const RESPONSE_TIMEOUT = setting(
  '--response-timeout <seconds>',
  'time until a sandbox must have begun its response',
  parseSeconds,
  600,
);

const SETTINGS: Program['settings'] = [
  ...grouped('Basics', BASICS),
  ...grouped('Who and where', WHO_AND_WHERE),
  ...grouped('Limits', [...TRAFFIC_SETTINGS, RESPONSE_TIMEOUT]),
  ...grouped('Expiry and hooks', EXPIRY),
  ...grouped('Registry', REGISTRY_SETTINGS),
];

/** Returns the command line of the gateway. */
export function gatewayProgram(): Program {
  return {
    name: 'envd-gateway',
    description: 'One host for many sandboxes, and a time to live for each of them.',
    version: [packageVersion(), 'print the version'],
    prefix: 'ENVD_GATEWAY_',
    settings: SETTINGS,
  };
}

/** Reads argv (without node and script) and the environment; a flag goes before its `ENVD_GATEWAY_*` variable. */
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
    return { exitCode: 2, output: "error: one of '--api-key <key>' and '--key-file <file>' must be given\n" };
  }
  const registry = readRegistry(settings);
  if (typeof registry === 'string') return { exitCode: 2, output: `error: ${registry}\n` };
  const config: GatewayConfig = {
    ...settings,
    version,
    path: env.PATH || DEFAULT_PATH,
    ...registry,
  };
  return { run: Object.freeze(config) };
}
