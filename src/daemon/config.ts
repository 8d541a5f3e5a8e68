import { Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import { buildCommit, INTERFACE_VERSION, packageVersion } from '../base/version.ts';

const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** Everything that can be set from outside, validated; nothing else reads argv or the environment. */
export interface Config {
  /** 0: a free one. */
  readonly port: number;
  readonly host: string;
  /** The cgroup v2 directory below which `user` and `ptys` are made; null: discovered. */
  readonly cgroupRoot: string | null;
  readonly cgroups: boolean;
  readonly logLevel: LogLevel;
  /** Where state lives that must outlive the daemon but not the boot. */
  readonly runtimeDirectory: string;
  /** Where the platform's metadata is; null: nowhere. */
  readonly metadataService: URL | null;
  /** A directory of the file system that /fsfreeze freezes. */
  readonly fsfreezePath: string;
  /** Bytes of output kept of each process, for clients that come back. */
  readonly historyBytes: number;
  /** PATH of the daemon, the base of every process' own. */
  readonly path: string;
  /** What the daemon's names in the guest begin with: attributes of files, variables, a directory in /run. */
  readonly namePrefix: string;
  /** Of the build. */
  readonly version: string;
  /** Where the service manager listens, sd_notify(3); null: there is none. */
  readonly notifySocket: string | null;
  /** What standard output is when it is the journal, systemd.exec(5); null: it is not. */
  readonly journalStream: string | null;
}

/** What the command line asks for: to run, or to print something and exit. */
export type Invocation = { readonly run: Config } | { readonly exitCode: 0 | 2; readonly output: string };

/** Flags that are no settings. */
const PRINTING = ['--version', '--commit'];
const DEFAULT_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

type Options = Omit<
  Config,
  'version' | 'path' | 'notifySocket' | 'journalStream' | 'cgroupRoot' | 'metadataService'
> & {
  readonly cgroupRoot?: string;
  readonly metadataService?: URL;
  readonly commit?: true;
};

/** Reads argv (without node and script) and the environment; a flag goes before its `ENVD_*` variable. */
export function readConfig(argv: readonly string[] = process.argv.slice(2), env = process.env): Invocation {
  const output: string[] = [];
  const command = buildCommand((text) => output.push(text));
  // commander reads variables itself, from process.env alone: hand ours over as defaults instead.
  const withVariables = [...argumentsFrom(command, env), ...argv.map(withTwoDashes)];
  try {
    command.parse(withVariables, { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    return { exitCode: error.exitCode === 0 ? 0 : 2, output: output.join('') };
  }
  const { cgroupRoot = null, metadataService = null, commit, ...options } = command.opts<Options>();
  if (commit) return { exitCode: 0, output: `${buildCommit()}\n` };
  const version = packageVersion();
  const path = env.PATH || DEFAULT_PATH;
  const notifySocket = env.NOTIFY_SOCKET || null;
  const journalStream = env.JOURNAL_STREAM || null;
  return {
    run: Object.freeze({
      ...options,
      cgroupRoot,
      metadataService,
      path,
      version,
      notifySocket,
      journalStream,
    }),
  };
}

/** Long flags may be given as those of the reference are: `-version`, `-port=1`. */
function withTwoDashes(argument: string): string {
  return /^-[a-z][a-z-]/.test(argument) ? `-${argument}` : argument;
}

function buildCommand(print: (text: string) => void): Command {
  const command = new Command('envd')
    .description('The agent inside a sandbox: commands, terminals, files and watches for a remote client.')
    .version(INTERFACE_VERSION, '-V, --version', 'print the level of the interface')
    .option('--commit', 'print the commit that this was built from')
    .allowExcessArguments(false)
    .configureOutput({ writeOut: print, writeErr: print })
    .exitOverride();
  for (const option of [...serverOptions(), ...guestOptions()]) command.addOption(option);
  return command;
}

function serverOptions(): Option[] {
  return [
    new Option('--port <number>', 'port to listen on (ENVD_PORT)').default(49983).argParser(parsePort),
    new Option('--host <address>', 'address to listen on (ENVD_HOST)').default('0.0.0.0').argParser(nonEmpty),
    new Option('--log-level <level>', 'least severe level to log (ENVD_LOG_LEVEL)')
      .choices(LOG_LEVELS)
      .default('info'),
    new Option('--history-bytes <number>', 'output kept for clients that come back (ENVD_HISTORY_BYTES)')
      .default(1024 * 1024)
      .argParser(parseBytes),
  ];
}

function guestOptions(): Option[] {
  return [
    new Option('--cgroup-root <path>', 'cgroup v2 directory of the workload (ENVD_CGROUP_ROOT)').argParser(
      parsePath,
    ),
    new Option('--no-cgroups', 'start processes in the cgroup of the daemon (ENVD_NO_CGROUPS=1)'),
    new Option('--runtime-directory <path>', 'state of this boot (ENVD_RUNTIME_DIRECTORY)')
      .default('/run/envd')
      .argParser(parsePath),
    new Option(
      '--metadata-service <url>',
      'what tells the guest who it is (ENVD_METADATA_SERVICE)',
    ).argParser(parseUrl),
    new Option('--name-prefix <prefix>', 'what names in the guest begin with (ENVD_NAME_PREFIX)')
      .default('svc')
      .argParser(parsePrefix),
    new Option('--fsfreeze-path <path>', 'file system that /fsfreeze freezes (ENVD_FSFREEZE_PATH)')
      .default('/')
      .argParser(parsePath),
  ];
}

/** `ENVD_PORT=1` as `--port=1`, for each option that the command knows; an empty variable is none. */
function argumentsFrom(command: Command, env: NodeJS.ProcessEnv): string[] {
  return command.options.flatMap((option) => {
    const flag = option.long ?? '';
    const value = env[`ENVD_${flag.slice(2).replaceAll('-', '_').toUpperCase()}`];
    if (value === undefined || value === '' || PRINTING.includes(flag)) return [];
    if (option.required) return [`${flag}=${value}`];
    return value === '0' || value === 'false' ? [] : [flag];
  });
}

function parsePort(text: string): number {
  const port = Number(text);
  if (/^\d{1,5}$/.test(text) && port <= 65535) return port;
  throw new InvalidArgumentError('It must be a whole number from 0 to 65535.');
}

function parseBytes(text: string): number {
  if (/^\d{1,10}$/.test(text)) return Number(text);
  throw new InvalidArgumentError('It must be a whole number of bytes.');
}

function nonEmpty(text: string): string {
  if (text !== '') return text;
  throw new InvalidArgumentError('It must not be empty.');
}

function parseUrl(text: string): URL {
  const url = URL.parse(text);
  if (url?.protocol === 'http:' && url.username === '' && url.password === '') return url;
  throw new InvalidArgumentError('It must be an http URL.');
}

function parsePrefix(text: string): string {
  if (/^[a-z][a-z\d]{0,31}$/.test(text)) return text;
  throw new InvalidArgumentError('It must be of lower case letters and digits, a letter first, at most 32.');
}

function parsePath(text: string): string {
  if (text.startsWith('/')) return text;
  throw new InvalidArgumentError('It must be an absolute path.');
}
