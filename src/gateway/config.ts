import { Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import { packageVersion } from '../base/version.ts';
import { OUTCOMES, type Outcome } from './leases/sandbox.ts';

const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;

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
  readonly onExpiry: Outcome;
  /** The time to live of a sandbox that is registered without one, in seconds. */
  readonly defaultTimeout: number;
  readonly logLevel: (typeof LOG_LEVELS)[number];
  /** PATH of the gateway, and so of the hook. */
  readonly path: string;
  readonly version: string;
}

/** What the command line asks for: to run, or to print something and exit. */
export type Invocation = { readonly run: Config } | { readonly exitCode: 0 | 2; readonly output: string };

const DEFAULT_REGISTRY = '/var/lib/envd-gateway/registry.db';
const DEFAULT_HOOKS = '/var/lib/envd-gateway/hooks';
const DEFAULT_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

type Options = Omit<Config, 'version' | 'path' | 'registry' | 'redis' | 'hook'> & {
  readonly registry?: string;
  readonly redis?: string;
  readonly hook?: string;
};

/** Reads argv (without node and script) and the environment; a flag goes before its `ENVD_GATEWAY_*` variable. */
export function readConfig(argv: readonly string[] = process.argv.slice(2), env = process.env): Invocation {
  const output: string[] = [];
  const version = packageVersion();
  const command = buildCommand(version, (text) => output.push(text));
  try {
    command.parse([...argumentsFrom(command, env), ...argv], { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    return { exitCode: error.exitCode === 0 ? 0 : 2, output: output.join('') };
  }
  const { registry, redis = null, hook = null, ...options } = command.opts<Options>();
  const config: Config = {
    ...options,
    ...{ redis, hook, version, path: env.PATH || DEFAULT_PATH },
    registry: redis === null ? (registry ?? DEFAULT_REGISTRY) : null,
  };
  return { run: Object.freeze(config) };
}

function buildCommand(version: string, print: (text: string) => void): Command {
  const command = new Command('envd-gateway')
    .description('One host for many sandboxes, and a time to live for each of them.')
    .version(version)
    .allowExcessArguments(false)
    .configureOutput({ writeOut: print, writeErr: print })
    .exitOverride();
  for (const option of [...hostOptions(), ...registryOptions(), ...expiryOptions()])
    command.addOption(option);
  return command;
}

const variable = (name: string) => `(ENVD_GATEWAY_${name})`;

function hostOptions(): Option[] {
  return [
    new Option('--port <number>', `port to listen on ${variable('PORT')}`)
      .default(49980)
      .argParser(parsePort),
    new Option('--host <address>', `address to listen on ${variable('HOST')}`)
      .default('0.0.0.0')
      .argParser(nonEmpty),
    new Option('--api-key <key>', `opens the platform operations ${variable('API_KEY')}`)
      .argParser(nonEmpty)
      .makeOptionMandatory(),
    new Option('--header-prefix <name>', `of -Sandbox-Id and -Sandbox-Port ${variable('HEADER_PREFIX')}`)
      .default('Svc')
      .argParser(parsePrefix),
    new Option('--log-level <level>', `least severe level to log ${variable('LOG_LEVEL')}`)
      .choices(LOG_LEVELS)
      .default('info'),
  ];
}

function registryOptions(): Option[] {
  return [
    new Option(
      '--registry <file>',
      `the embedded registry ${variable('REGISTRY')}; ${DEFAULT_REGISTRY} unless told`,
    )
      .argParser(parsePath)
      .conflicts('redis'),
    new Option('--redis <url>', `the registry that several gateways share ${variable('REDIS')}`).argParser(
      parseRedisUrl,
    ),
  ];
}

function expiryOptions(): Option[] {
  return [
    new Option('--hook <command|url>', `told of a sandbox that has expired ${variable('HOOK')}`).argParser(
      nonEmpty,
    ),
    new Option('--hook-timeout <seconds>', `a hook that takes longer has failed ${variable('HOOK_TIMEOUT')}`)
      .default(60)
      .argParser(parseSeconds),
    new Option(
      '--hook-directory <path>',
      `what hooks were run, and how they ended ${variable('HOOK_DIRECTORY')}`,
    )
      .default(DEFAULT_HOOKS)
      .argParser(parsePath),
    new Option('--on-expiry <outcome>', `what the hook does to a sandbox ${variable('ON_EXPIRY')}`)
      .choices(OUTCOMES)
      .default('pause'),
    new Option('--default-timeout <seconds>', `time to live unless told ${variable('DEFAULT_TIMEOUT')}`)
      .default(300)
      .argParser(parseSeconds),
  ];
}

/** `ENVD_GATEWAY_PORT=1` as `--port=1`, for each option that the command knows; an empty variable is none. */
function argumentsFrom(command: Command, env: NodeJS.ProcessEnv): string[] {
  return command.options.flatMap((option) => {
    const flag = option.long ?? '';
    const value = env[`ENVD_GATEWAY_${flag.slice(2).replaceAll('-', '_').toUpperCase()}`];
    return value === undefined || value === '' || !option.required ? [] : [`${flag}=${value}`];
  });
}

function parsePort(text: string): number {
  const port = Number(text);
  if (/^\d{1,5}$/.test(text) && port <= 65535) return port;
  throw new InvalidArgumentError('It must be a whole number from 0 to 65535.');
}

function parseSeconds(text: string): number {
  if (/^\d{1,8}$/.test(text) && Number(text) > 0) return Number(text);
  throw new InvalidArgumentError('It must be a whole number of seconds, at least 1.');
}

function nonEmpty(text: string): string {
  if (text !== '') return text;
  throw new InvalidArgumentError('It must not be empty.');
}

function parsePrefix(text: string): string {
  if (/^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$/.test(text)) return text;
  throw new InvalidArgumentError('It must be letters and digits, as headers begin with.');
}

function parseRedisUrl(text: string): string {
  if (['redis:', 'rediss:'].includes(URL.parse(text)?.protocol ?? '')) return text;
  throw new InvalidArgumentError('It must be a redis:// or rediss:// URL.');
}

function parsePath(text: string): string {
  if (text.startsWith('/')) return text;
  throw new InvalidArgumentError('It must be an absolute path.');
}
