import {
  DEFAULT_PATH,
  type Invocation,
  LOG_LEVEL,
  type LogLevel,
  matching,
  nonEmpty,
  type Program,
  parsePath,
  parsePort,
  parseUrl,
  readSettings,
  setting,
} from '../../base/program/settings.ts';
import { buildCommit, INTERFACE_VERSION, packageVersion } from '../../base/program/version.ts';
import type { Command } from '../linux/processes/program.ts';
import { type StoredDescriptor, takeStored } from '../linux/system/systemd.ts';
import type { WorkloadLimits } from '../services/process/cgroups/cgroups.ts';
import { LIMIT_SETTINGS, type WorkloadSettings, workloadLimits } from './limits.ts';

/** The flags that have a default. */
interface Defaulted {
  /** 0: any free port. */
  readonly port: number;
  readonly host: string;
  readonly cgroups: boolean;
  readonly logLevel: LogLevel;
  /** The directory of state that is kept across restarts of the daemon, but not across boots. */
  readonly runtimeDirectory: string;
  /** A directory of the file system that /fsfreeze freezes. */
  readonly fsfreezePath: string;
  /** Bytes of output kept per process, for clients that resume a stream. */
  readonly historyBytes: number;
  /** What streams and processes keep for slow readers, all together, in bytes. */
  readonly unreadBytes: number;
  /** What requests that are being received or served take, all together, in bytes. */
  readonly requestBytes: number;
  /** The most connections. */
  readonly maxConnections: number;
  /** The most localhost listeners that are forwarded. */
  readonly maxForwards: number;
  /** The most open streams: Start, Connect, StreamInput, WatchDir. */
  readonly maxStreams: number;
  /** The most processes of clients, without their descendants, that run at a time. */
  readonly maxProcesses: number;
  /** Time until a started program must run, in seconds; then it is killed. */
  readonly startTimeout: number;
  /** Time that the program of an upgrade has to load and to read the version of the state, in seconds. */
  readonly upgradeTimeout: number;
  /** The longest time that a request to a file system which may not answer, such as FUSE or NFS, may take, in seconds. */
  readonly fileTimeout: number;
  /** Prefix of names in the guest: extended attributes, variables, the directory in /run. */
  readonly namePrefix: string;
}

/** The validated configuration; only this file reads argv and the environment. */
export interface Config extends Defaulted {
  /** The cgroup v2 directory in which `user` and `ptys` are created; null: `envd` at the mount point. */
  readonly cgroupRoot: string | null;
  /** Whether the log has the programs and arguments of processes. */
  readonly logArguments: boolean;
  /** The URL of the platform's metadata service; null: none. */
  readonly metadataService: URL | null;
  /** Whether `metadataService` is the default address, where there may be no service. */
  readonly metadataIsOptional: boolean;
  /** IPv4 address at which localhost listeners are reachable; `off`: nowhere; null: that of the default route. */
  readonly forwardAddress: string | null;
  /** The URL of the collector that gets the log; null: the one that the metadata service names; `off`: none. */
  readonly logCollector: URL | 'off' | null;
  readonly workload: WorkloadLimits;
  /** UV_THREADPOOL_SIZE: threads in libuv's pool. */
  readonly threads: number;
  /** PATH of the daemon and, by default, of the processes it starts. */
  readonly path: string;
  /** The version of the build. */
  readonly version: string;
  /** The program that replaces this one in an upgrade, and how this one was started. */
  readonly commands: { readonly next: Command; readonly own: Command };
  /** Only loads everything and reads the version of the state on descriptor 3. */
  readonly tryUpgrade: boolean;
  /** Only prints what this guest can. */
  readonly doctor: boolean;
  /** ENVD_HANDOVER: descriptor of the state of the earlier program of this process; null: there was none. */
  readonly handover: number | null;
  /** LISTEN_FDS: descriptors that the service manager has kept for this program, see sd_listen_fds(3). */
  readonly stored: readonly StoredDescriptor[];
  /** NOTIFY_SOCKET, see sd_notify(3); null: no service manager. */
  readonly notifySocket: string | null;
  /** JOURNAL_STREAM, see systemd.exec(5); null: standard output is not the journal. */
  readonly journalStream: string | null;
}

/** The flags as they were given. */
interface Settings extends Defaulted, WorkloadSettings {
  readonly logArguments?: true;
  readonly cgroupRoot?: string;
  readonly metadataService?: string;
  readonly forwardAddress?: string;
  readonly logCollector?: URL | 'off' | 'auto';
  readonly program?: string;
  readonly commit?: true;
  readonly tryUpgrade?: true;
  readonly doctor?: true;
}

/** Where platforms have it. */
const METADATA_SERVICE = 'http://169.254.169.254/';
const parseMetadataUrl = parseUrl(['http:'], 'refused', 'It must be an http URL or off.');
const COLLECTOR = 'It must be an http or https URL, auto or off.';
const parseCollectorUrl = parseUrl(['http:', 'https:'], 'refused', COLLECTOR);

const parsePrefix = matching(
  /^[a-z][a-z\d]{0,31}$/,
  'It must be 1 to 32 lower case letters and digits and start with a letter.',
);

const PROGRAM: Program = {
  name: 'envd',
  description: 'The agent inside a sandbox: commands, terminals, files and watches for a remote client.',
  version: [INTERFACE_VERSION, 'print the version of the interface'],
  prefix: 'ENVD_',
  switches: [
    { flags: '--commit', help: 'print the commit of this build' },
    { flags: '--doctor', help: 'print what this guest can, and why not; also: envd doctor' },
    { flags: '--try-upgrade', help: 'exit with 0 if this program can take over the state on descriptor 3' },
  ],
  settings: [
    setting('--port <number>', 'port to listen on', parsePort, 49983),
    setting('--host <address>', 'address to listen on', nonEmpty, '0.0.0.0'),
    LOG_LEVEL,
    { flags: '--log-arguments', help: 'log the arguments of processes, which may have secrets' },
    ...LIMIT_SETTINGS,
    setting('--cgroup-root <path>', 'cgroup v2 directory of the workload', parsePath),
    { flags: '--no-cgroups', help: 'start processes in the cgroup of the daemon' },
    setting('--program <path>', 'program that /upgrade starts instead of this one', parsePath),
    setting('--runtime-directory <path>', 'directory of the daemon state', parsePath, '/run/envd'),
    setting('--metadata-service <url>', 'URL of the metadata service, or off', (text) =>
      text === 'off' ? text : parseMetadataUrl(text),
    ),
    setting(
      '--forward-address <address>',
      'IPv4 address at which localhost listeners are reachable, or off',
      matching(/^(\d{1,3}(\.\d{1,3}){3}|off)$/, 'It must be an IPv4 address or off.'),
    ),
    setting('--log-collector <url>', 'URL that the log is sent to; auto: by metadata; or off', (text) =>
      text === 'off' || text === 'auto' ? text : new URL(parseCollectorUrl(text)),
    ),
    setting('--name-prefix <prefix>', 'prefix of names in the guest', parsePrefix, 'svc'),
    setting('--fsfreeze-path <path>', 'file system that /fsfreeze freezes', parsePath, '/'),
  ],
};

/** Reads argv (without node and script) and the environment; a flag overrides its `ENVD_*` variable. */
export function readConfig(
  argv: readonly string[] = process.argv.slice(2),
  env = process.env,
): Invocation<Config> {
  const read = readSettings<Settings>(PROGRAM, argv.map(withTwoDashes), env);
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
  const own: Command = [process.execPath, ...process.execArgv, process.argv[1] ?? '', ...argv];
  return { own, next: program === null ? own : [program, ...argv] };
}

/** The environment of a later program of this process. `handover`: the descriptor of its state. */
export function environmentWith(handover: number): NodeJS.ProcessEnv {
  return { ...process.env, ENVD_HANDOVER: String(handover) };
}

/** Accepts long flags with one dash, as Go programs do (`-version`, `-port=1`), and `doctor` as the first word. */
function withTwoDashes(argument: string, index: number): string {
  if (index === 0 && argument === 'doctor') return '--doctor';
  return /^-[a-z][a-z-]/.test(argument) ? `-${argument}` : argument;
}
