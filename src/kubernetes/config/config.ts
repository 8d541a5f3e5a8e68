import {
  grouped,
  type Invocation,
  LOG_LEVEL,
  type LogLevel,
  matching,
  nonEmpty,
  type Program,
  parseCount,
  parseList,
  parsePath,
  parsePort,
  parseWait,
  readSettings,
  type Setting,
  setting,
} from '../../base/program/settings.ts';
import { packageVersion } from '../../base/program/version.ts';
import { parseSecret } from '../hooks/verify.ts';
import { PAUSE_WAYS, type PauseWay } from '../machines/machines.ts';
import { type Cidr, parseRange } from '../pods/egress.ts';

/** All validated settings. Nothing else in this program reads argv or the environment. */
export interface KubernetesConfig {
  /** 0 means any free port. */
  readonly port: number;
  readonly host: string;
  readonly logLevel: LogLevel;
  /** The gateway signs its requests with one of these. */
  readonly hookSecret: readonly Buffer[];
  /** The path of a file that says how the API server is reached; null: the service account of this Pod. */
  readonly kubeconfig: string | null;
  /** Templates and Pods are in this namespace. */
  readonly namespace: string;
  /** The image that has the daemon. */
  readonly daemonImage: string;
  /** A Pod must be ready, and gone, within this time, in seconds. */
  readonly podTimeout: number;
  readonly pause: readonly PauseWay[];
  /** The network of the cluster enforces policies. */
  readonly networkPolicies: boolean;
  /** No sandbox that has a policy of its own may reach these. */
  readonly closedAddresses: readonly Cidr[];
  /** So many Pods of a pool may start at the same time. */
  readonly poolStarts: number;
  readonly version: string;
}

type Settings = Omit<KubernetesConfig, 'version' | 'kubeconfig'> & { readonly kubeconfig?: string };

const BASICS: readonly Setting[] = [
  setting('--port <number>', 'port to listen on; 0: any free port', parsePort, 49981),
  setting('--host <address>', 'address to listen on', nonEmpty, '0.0.0.0'),
  {
    ...setting(
      '--hook-secret <list>',
      "the gateway's secrets (whsec_ and base64); use the variable, because process lists show flags",
      parseList(parseSecret, 'It must be whsec_ and 24 to 64 bytes in base64. Separate several by commas.'),
    ),
    mandatory: true,
  },
  LOG_LEVEL,
];

function readPause(text: string): PauseWay | null {
  return PAUSE_WAYS.find((each) => each === text) ?? null;
}

/** The addresses of networks that are not public. */
const CLOSED = ['10.0.0.0/8', '100.64.0.0/10', '169.254.0.0/16', '172.16.0.0/12', '192.168.0.0/16'];

const CLUSTER: readonly Setting[] = [
  setting(
    '--kubeconfig <file>',
    'how the API server is reached; default: as a Pod of the cluster',
    parsePath,
  ),
  setting(
    '--namespace <name>',
    'namespace of templates and Pods',
    matching(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/, 'It must be the name of a namespace.'),
    'sandboxes',
  ),
  { ...setting('--daemon-image <image>', 'image that has the daemon', nonEmpty), mandatory: true },
  setting('--pod-timeout <seconds>', 'time limit for a Pod to be ready, and to be gone', parseWait, 55),
  setting('--pool-starts <number>', 'maximum number of Pods of a pool that start at a time', parseCount, 4),
  {
    ...setting(
      '--pause <list>',
      'how sandboxes are paused; freeze: their processes stay, frozen by the daemon; disk: their volumes stay, and the Pod goes',
      parseList(readPause, 'It must be freeze, disk, or both, separated by a comma.'),
      [],
    ),
    defaultText: 'none',
  },
  {
    flags: '--network-policies',
    help: 'the network of the cluster enforces NetworkPolicies, so clients may limit what their sandboxes reach',
    defaultValue: false,
  },
  {
    ...setting(
      '--closed-addresses <list>',
      'what no sandbox with a policy of its own reaches, whatever its client asks for',
      parseList(
        parseRange,
        'It must be addresses and ranges of IPv4 such as 10.0.0.0/8, separated by commas.',
      ),
      CLOSED.map((cidr) => parseRange(cidr)),
    ),
    defaultText: CLOSED.join(),
  },
];

/** Describes the command line: its flags, their help and their variables. */
function kubernetesProgram(): Program {
  return {
    name: 'envd-kubernetes',
    description: 'Answers the hooks of the gateway with Pods of a Kubernetes cluster.',
    version: [packageVersion(), 'print the version'],
    prefix: 'ENVD_KUBERNETES_',
    settings: [...grouped('Basics', BASICS), ...grouped('Cluster', CLUSTER)],
  };
}

/**
 * Reads argv (without node and script) and the environment. A flag overrides its `ENVD_KUBERNETES_*` variable. Returns the
 * configuration, or the output to print for `--help`, `--version` and errors.
 */
export function readKubernetesConfig(
  argv: readonly string[] = process.argv.slice(2),
  env = process.env,
): Invocation<KubernetesConfig> {
  const program = kubernetesProgram();
  const read = readSettings<Settings>(program, argv, env);
  if (!('settings' in read)) return read;
  return { run: Object.freeze({ kubeconfig: null, ...read.settings, version: program.version[0] }) };
}
