import {
  DEFAULT_PATH,
  grouped,
  type Invocation,
  LOG_LEVEL,
  type LogLevel,
  matching,
  nonEmpty,
  type Program,
  parsePath,
  parsePort,
  parseUrl,
  parseWait,
  readSettings,
  setting,
} from '../../base/program/settings.ts';
import { buildCommit, INTERFACE_VERSION, packageVersion } from '../../base/program/version.ts';
import type { Command } from '../linux/processes/program.ts';
import { NODE } from '../linux/system/self.ts';
import { type StoredDescriptor, takeStored } from '../linux/system/systemd.ts';
import type { WorkloadLimits } from '../services/process/cgroups/cgroups.ts';
import { DAEMON_LIMITS, WORKLOAD_LIMITS, type WorkloadSettings, workloadLimits } from './limits.ts';

/** The flags that have a default. */
interface Defaulted {
  /** 0: any free port. */
  readonly port: number;
  readonly host: string;
  readonly cgroups: boolean;
  readonly logLevel: LogLevel;
  /** State that survives a restart of the daemon, but not a boot, is in this directory. */
  readonly runtimeDirectory: string;
  /** /fsfreeze freezes the file system of this directory. */
  readonly fsfreezePath: string;
  /** Bytes of output that are kept per process, for clients that resume a stream. */
  readonly historyBytes: number;
  /** Bytes that all processes together may keep in `outputDirectory`. */
  readonly outputBytes: number;
  /** Bytes that all streams and processes together may keep for slow readers. */
  readonly unreadBytes: number;
  /** Bytes that all requests together may take while they are received and served. */
  readonly requestBytes: number;
  readonly maxConnections: number;
  /** The limit of forwarded localhost listeners. */
  readonly maxForwards: number;
  /** The limit of open streams: Start, Connect, StreamInput and WatchDir. */
  readonly maxStreams: number;
  /** The limit of processes that clients have started and that run, without their descendants. */
  readonly maxProcesses: number;
  /** Seconds after which a started program that does not run yet is killed. */
  readonly startTimeout: number;
  /** Seconds in which the program of an upgrade must load and read the version of the state. */
  readonly upgradeTimeout: number;
  /** Seconds that a request to a file system which may not answer, such as FUSE or NFS, may take. */
  readonly fileTimeout: number;
  /** Extended attributes, variables and the directory in /run have names with this prefix. */
  readonly namePrefix: string;
}

/** The validated configuration; only this file reads argv and the environment. */
export interface Config extends Defaulted {
  /** The cgroup v2 directory in which `user` and `ptys` are created; null: `envd` at the mount point. */
  readonly cgroupRoot: string | null;
  /** The directory in which output is kept for `keep_output`; null: it is not kept. */
  readonly outputDirectory: string | null;
  /** The file with the access token that is set at the start; null: none is set. */
  readonly tokenFile: string | null;
  /** Whether operations are closed, and not open, while no access token is set. */
  readonly requireToken: boolean;
  /** Whether the log shows the programs and arguments of processes. */
  readonly logArguments: boolean;
  /** The URL of the platform's metadata service; null: none. */
  readonly metadataService: URL | null;
  /** Whether `metadataService` is the default address, where there may be no service. */
  readonly metadataIsOptional: boolean;
  /** IPv4 address at which localhost listeners are reachable; `off`: nowhere; null: that of the default route. */
  readonly forwardAddress: string | null;
  /** The URL of the collector that gets the log; null: the one in the metadata; `off`: none. */
  readonly logCollector: URL | 'off' | null;
  readonly workload: WorkloadLimits;
  /** UV_THREADPOOL_SIZE: the number of threads in libuv's pool. */
  readonly threads: number;
  /** PATH of the daemon and, by default, of the processes it starts. */
  readonly path: string;
  /** The version of the build. */
  readonly version: string;
  /** The command of the program that replaces this one in an upgrade, and the command that started this one. */
  readonly commands: { readonly next: Command; readonly own: Command };
  /** Whether to load everything, read the version of the state on descriptor 3, and exit. */
  readonly tryUpgrade: boolean;
  /** Whether to print what this guest can do, and exit. */
  readonly doctor: boolean;
  /** ENVD_HANDOVER: the descriptor of the state of this process' earlier program; null: there was none. */
  readonly handover: number | null;
  /** LISTEN_FDS: the descriptors that the service manager has kept for this program. Source: sd_listen_fds(3). */
  readonly stored: readonly StoredDescriptor[];
  /** NOTIFY_SOCKET; null: there is no service manager. Source: sd_notify(3). */
  readonly notifySocket: string | null;
  /** JOURNAL_STREAM; null: standard output is not the journal. Source: systemd.exec(5). */
  readonly journalStream: string | null;
}

/** The values of the flags, before defaults that depend on other values. */
interface Settings extends Defaulted, WorkloadSettings {
  readonly logArguments?: true;
  readonly tokenFile?: string;
  readonly requireToken?: true;
  readonly cgroupRoot?: string;
  readonly outputDirectory?: string;
  readonly metadataService?: string;
  readonly forwardAddress?: string;
  readonly logCollector?: URL | 'off' | 'auto';
  readonly program?: string;
  readonly commit?: true;
  readonly tryUpgrade?: true;
  readonly doctor?: true;
}

/** Platforms serve metadata at this address. */
const METADATA_SERVICE = 'http://169.254.169.254/';
const parseMetadataUrl = parseUrl(['http:'], 'refused', 'It must be an http URL or off.');
const COLLECTOR = 'It must be an http or https URL, auto or off.';
const parseCollectorUrl = parseUrl(['http:', 'https:'], 'refused', COLLECTOR);

const parsePrefix = matching(
  /^[a-z][a-z\d]{0,31}$/,
  'It must be 1 to 32 lower case letters and digits and start with a letter.',
);

/** The command line of the daemon. */
export const DAEMON_PROGRAM: Program = {
  name: 'envd',
  description: 'The agent inside a sandbox: commands, terminals, files and watches for a remote client.',
  version: [INTERFACE_VERSION, 'print the version of the interface'],
  prefix: 'ENVD_',
  switches: [
    { flags: '--commit', help: 'print the commit of this build' },
    {
      flags: '--doctor',
      help: 'print what works in this guest, and whether it is ready for a pause; also: envd doctor',
    },
    { flags: '--try-upgrade', help: 'exit with 0 if this program can take over the state on descriptor 3' },
  ],
  settings: [
    ...grouped('Server', [
      setting('--port <number>', 'port to listen on; 0: any free port', parsePort, 49983),
      setting('--host <address>', 'address to listen on', nonEmpty, '0.0.0.0'),
      setting(
        '--runtime-directory <path>',
        'directory for state that survives a restart',
        parsePath,
        '/run/envd',
      ),
    ]),
    ...grouped('Access', [
      setting('--token-file <path>', 'file with the access token to set at the start', parsePath),
      {
        flags: '--require-token',
        help: 'refuse all calls but /health and /init while no access token is set',
      },
    ]),
    ...grouped('Log', [
      LOG_LEVEL,
      { flags: '--log-arguments', help: 'log programs and arguments of processes; they may contain secrets' },
      setting(
        '--log-collector <url>',
        'URL to send the log to; auto: the one in the metadata; off: none; default: auto',
        (text) => (text === 'off' || text === 'auto' ? text : new URL(parseCollectorUrl(text))),
      ),
    ]),
    ...grouped('Limits of the daemon', DAEMON_LIMITS),
    ...grouped('Processes of clients', [
      ...WORKLOAD_LIMITS,
      setting(
        '--cgroup-root <path>',
        'cgroup v2 directory for them; default: envd at the mount point',
        parsePath,
      ),
      { flags: '--no-cgroups', help: 'start them in the cgroup of the daemon, without freeze and limits' },
    ]),
    ...grouped('Guest', [
      setting(
        '--metadata-service <url>',
        `URL of the metadata service; off: none; default: ${METADATA_SERVICE}, if it answers`,
        (text) => (text === 'off' ? text : parseMetadataUrl(text)),
      ),
      setting(
        '--forward-address <address>',
        'IPv4 address at which localhost listeners are reachable; off: none; default: that of the default route',
        matching(/^(\d{1,3}(\.\d{1,3}){3}|off)$/, 'It must be an IPv4 address or off.'),
      ),
      setting('--name-prefix <prefix>', 'prefix of names in the guest, as in /run/svc', parsePrefix, 'svc'),
      setting(
        '--fsfreeze-path <path>',
        'directory of the file system that /fsfreeze freezes',
        parsePath,
        '/',
      ),
    ]),
    ...grouped('Upgrade', [
      setting('--program <path>', 'program that /upgrade starts; default: this one', parsePath),
      setting('--upgrade-timeout <seconds>', 'time limit for the trial of that program', parseWait, 30),
    ]),
  ],
};

/** Reads argv (without node and script) and the environment; a flag overrides its `ENVD_*` variable. */
export function readConfig(
  argv: readonly string[] = process.argv.slice(2),
  env = process.env,
): Invocation<Config> {
  const read = readSettings<Settings>(DAEMON_PROGRAM, argv.map(withTwoDashes), env);
  if (!('settings' in read)) return read;
  const { cgroupRoot = null, program, metadataService, logCollector = 'auto', ...others } = read.settings;
  const { commit, tryUpgrade, doctor, maxTasks, maxMemory, cpuWeights, ioWeights, ...settings } = others;
  if (commit) return { exitCode: 0, output: `${buildCommit()}\n` };
  const config: Config = {
    ...settings,
    forwardAddress: settings.forwardAddress ?? null,
    cgroupRoot,
    workload: workloadLimits({ maxTasks, maxMemory, cpuWeights, ioWeights }),
    commands: commandsOf(program ?? null, argv),
    tryUpgrade: tryUpgrade === true,
    doctor: doctor === true,
    logArguments: settings.logArguments === true,
    tokenFile: settings.tokenFile ?? null,
    outputDirectory: settings.outputDirectory ?? null,
    requireToken: settings.requireToken === true,
    handover: env.ENVD_HANDOVER ? Number(env.ENVD_HANDOVER) : null,
    stored: takeStored(env),
    logCollector: logCollector === 'auto' ? null : logCollector,
    metadataService: metadataService === 'off' ? null : new URL(metadataService ?? METADATA_SERVICE),
    metadataIsOptional: metadataService === undefined,
    path: env.PATH || DEFAULT_PATH,
    threads: Number(env.UV_THREADPOOL_SIZE) || 4,
    version: packageVersion(),
    notifySocket: env.NOTIFY_SOCKET || null,
    journalStream: env.JOURNAL_STREAM || null,
  };
  return { run: Object.freeze(config) };
}

function commandsOf(program: string | null, argv: readonly string[]): Config['commands'] {
  const own: Command = [...NODE, ...process.execArgv, process.argv[1] ?? '', ...argv];
  return { own, next: program === null ? own : [program, ...argv] };
}

/** Returns the environment for the next program of this process. `handover` is the descriptor of its state. */
export function environmentWith(handover: number): NodeJS.ProcessEnv {
  return { ...process.env, ENVD_HANDOVER: String(handover) };
}

/** Accepts long flags with one dash, as Go programs do (`-version`, `-port=1`), and `doctor` as the first word. */
function withTwoDashes(argument: string, index: number): string {
  if (index === 0 && argument === 'doctor') return '--doctor';
  return /^-[a-z][a-z-]/.test(argument) ? `-${argument}` : argument;
}
