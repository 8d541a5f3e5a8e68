import {
  DEFAULT_PATH,
  type Invocation,
  LOG_LEVEL,
  type LogLevel,
  matching,
  nonEmpty,
  type Program,
  parseBytes,
  parsePath,
  parsePort,
  parseUrl,
  readSettings,
} from '../base/settings.ts';
import { buildCommit, INTERFACE_VERSION, packageVersion } from '../base/version.ts';

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

/** What is read from the flags; one without a default may be absent. */
type Settings = Omit<
  Config,
  'version' | 'path' | 'notifySocket' | 'journalStream' | 'cgroupRoot' | 'metadataService'
> & {
  readonly cgroupRoot?: string;
  readonly metadataService?: string;
  readonly commit?: true;
};

const PROGRAM: Program = {
  name: 'envd',
  description: 'The agent inside a sandbox: commands, terminals, files and watches for a remote client.',
  version: [INTERFACE_VERSION, 'print the level of the interface'],
  prefix: 'ENVD_',
  switches: [{ flags: '--commit', help: 'print the commit that this was built from' }],
  settings: [
    { flags: '--port <number>', help: 'port to listen on', parse: parsePort, standard: 49983 },
    { flags: '--host <address>', help: 'address to listen on', parse: nonEmpty, standard: '0.0.0.0' },
    LOG_LEVEL,
    {
      ...{ flags: '--history-bytes <number>', help: 'output kept for clients that come back' },
      ...{ parse: parseBytes, standard: 1024 * 1024 },
    },
    { flags: '--cgroup-root <path>', help: 'cgroup v2 directory of the workload', parse: parsePath },
    { flags: '--no-cgroups', help: 'start processes in the cgroup of the daemon' },
    {
      ...{ flags: '--runtime-directory <path>', help: 'state of this boot' },
      ...{ parse: parsePath, standard: '/run/envd' },
    },
    {
      ...{ flags: '--metadata-service <url>', help: 'what tells the guest who it is' },
      parse: parseUrl(['http:'], 'refused', 'It must be an http URL.'),
    },
    {
      ...{ flags: '--name-prefix <prefix>', help: 'what names in the guest begin with', standard: 'svc' },
      parse: matching(
        /^[a-z][a-z\d]{0,31}$/,
        'It must be of lower case letters and digits, a letter first, at most 32.',
      ),
    },
    {
      ...{ flags: '--fsfreeze-path <path>', help: 'file system that /fsfreeze freezes' },
      ...{ parse: parsePath, standard: '/' },
    },
  ],
};

/** Reads argv (without node and script) and the environment; a flag goes before its `ENVD_*` variable. */
export function readConfig(
  argv: readonly string[] = process.argv.slice(2),
  env = process.env,
): Invocation<Config> {
  const read = readSettings<Settings>(PROGRAM, argv.map(withTwoDashes), env);
  if (!('settings' in read)) return read;
  const { cgroupRoot = null, metadataService, commit, ...settings } = read.settings;
  if (commit) return { exitCode: 0, output: `${buildCommit()}\n` };
  const config: Config = {
    ...settings,
    cgroupRoot,
    metadataService: metadataService === undefined ? null : new URL(metadataService),
    path: env.PATH || DEFAULT_PATH,
    version: packageVersion(),
    notifySocket: env.NOTIFY_SOCKET || null,
    journalStream: env.JOURNAL_STREAM || null,
  };
  return { run: Object.freeze(config) };
}

/** Long flags may be given as those of the reference are: `-version`, `-port=1`. */
function withTwoDashes(argument: string): string {
  return /^-[a-z][a-z-]/.test(argument) ? `-${argument}` : argument;
}
