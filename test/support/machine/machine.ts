import { spawnSync } from 'node:child_process';
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmdirSync,
  statfsSync,
} from 'node:fs';
import { release, tmpdir } from 'node:os';
import { delimiter, isAbsolute, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findCgroupMount } from '../../../src/daemon/linux/cgroups/cgroup-mounts.ts';
import { installMastra } from '../clients/frameworks.ts';

const LIST = fileURLToPath(new URL('../../../.ci/packages.txt', import.meta.url));
const KEEP_LOCKED = fileURLToPath(new URL('../attackers/keep-locked.py', import.meta.url));
/** Magic number of statfs(2). */
const EXT4_SUPER_MAGIC = 0xef53;
const SYSTEM_DIRECTORIES = ['/usr/sbin', '/sbin'];

/** Requirements of tests: programs of `.ci/packages.txt` by name, or one of these. */
export type Requirement =
  | 'root'
  | 'mounts'
  | 'fuse'
  | 'loop devices'
  | 'cgroup v2'
  | 'user namespaces'
  | 'userfaultfd'
  | 'room for 2 GiB'
  | 'containers'
  | 'kernel log'
  | 'a guarded out-of-memory score'
  | 'ext4'
  | 'the published command-line client'
  | 'the published Python client'
  | '@mastra/e2b'
  | 'langchain-e2b-selfhost'
  | (string & {});

const PROBES: Record<string, () => string | null> = {
  root: () => (process.geteuid?.() === 0 ? null : 'this is not root'),
  mounts: () => reasonAgainst('root') ?? failureOf('mounting is not permitted', mountInANamespace),
  fuse: () =>
    reasonAgainst('mounts') ??
    reasonAgainst('bindfs') ??
    failureOf('/dev/fuse cannot be opened', () => accessSync('/dev/fuse', constants.R_OK | constants.W_OK)),
  'loop devices': () =>
    reasonAgainst('mounts') ??
    reasonAgainst('mkfs.ext4') ??
    failureOf('no loop device can be had', () => run('losetup', '--find')),
  'cgroup v2': () =>
    reasonAgainst('root') ?? failureOf('there is no cgroup v2 that can be written to', makeACgroup),
  'user namespaces': () =>
    failureOf('user namespaces are not permitted', () => run('unshare', '-Ur', 'true')),
  userfaultfd: () =>
    reasonAgainst('root') ??
    failureOf('the kernel has no userfaultfd', () => run('python3', KEEP_LOCKED, 'probe')),
  'the published command-line client': () =>
    failureOf('@e2b/cli is not installed', () => run('e2b', '--version')),
  'the published Python client': () =>
    failureOf('the published Python client is not installed (pip install e2b)', () =>
      run('python3', '-c', 'import e2b'),
    ),
  '@mastra/e2b': () =>
    failureOf('@mastra/e2b is not in the cache, and was not installed (ENVD_FRAMEWORKS=1)', () =>
      installMastra(),
    ),
  'langchain-e2b-selfhost': () =>
    failureOf('langchain-e2b-selfhost is not installed (pip install langchain-e2b-selfhost)', () =>
      run('python3', '-c', 'import langchain_e2b_selfhost'),
    ),
  'kernel log': () =>
    reasonAgainst('root') ??
    failureOf('the log of the kernel cannot be opened, in /dev or /proc', () => {
      for (const path of ['/dev/kmsg', '/proc/kmsg']) closeSync(openSync(path, 'r'));
    }),
  'a guarded out-of-memory score': () =>
    reasonAgainst('root') ??
    failureOf('there is no CAP_SYS_RESOURCE, with which a score cannot be lowered by others', () =>
      run('sh', '-c', GUARDED_SCORE_PROBE),
    ),
  containers: () =>
    reasonAgainst('mounts') ??
    reasonAgainst('crun') ??
    reasonAgainst('mmdebstrap') ??
    failureOf('network and cgroup namespaces are not permitted', () =>
      run('unshare', '--net', '--mount', '--cgroup', 'sh', '-c', CONTAINER_PROBE),
    ),
  ext4: () => (statfsSync(tmpdir()).type === EXT4_SUPER_MAGIC ? null : 'temporary files are not on ext4'),
  'room for 2 GiB': () => {
    const { bavail, bsize } = statfsSync(tmpdir());
    return bavail * bsize > 3 * 2 ** 30 ? null : 'there are less than 3 GiB free for temporary files';
  },
};

/** What a program with the capability has set, one without it cannot lower. Source: proc_pid_oom_score_adj(5). */
const GUARDED_SCORE_PROBE =
  'echo 500 >/proc/self/oom_score_adj && exec setpriv --bounding-set=-sys_resource sh -c "! echo 100 >/proc/self/oom_score_adj"';

/** What a platform of containers does first. */
const CONTAINER_PROBE =
  'mount -t cgroup2 cgroup2 /sys/fs/cgroup && ip link add one type veth peer name other';

const known = new Map<string, string | null>();

/** Why a test with this requirement cannot run on this machine, or null. */
export function reasonAgainst(requirement: Requirement): string | null {
  let reason = known.get(requirement);
  if (reason === undefined) {
    const probe = PROBES[requirement] ?? (() => reasonAgainstProgram(requirement));
    reason = probe();
    known.set(requirement, reason);
  }
  return reason;
}

/** The programs that `.ci/packages.txt` has for a purpose. */
export function programsFor(purpose: string): string[] {
  return packages().flatMap(([wanted, program = '']) => (wanted === purpose ? [program] : []));
}

/** The cgroup v2 mount, if cgroups can be made there; a container may forbid that. */
export function usableCgroupMount(): string | null {
  return reasonAgainst('cgroup v2') === null ? findCgroupMount() : null;
}

/** The rows of `.ci/packages.txt`: purpose, program, packages. */
export function packages(): string[][] {
  const lines = readFileSync(LIST, 'utf8').split('\n');
  return lines.filter((line) => line !== '' && !line.startsWith('#')).map((line) => line.split(' '));
}

function reasonAgainstProgram(program: string): string | null {
  const [, , ...names] = packages().find(([, name]) => name === program) ?? [];
  if (names.length === 0) throw new Error(`'${program}' is not in .ci/packages.txt`);
  const directories = [...(process.env.PATH ?? '').split(delimiter), ...SYSTEM_DIRECTORIES];
  const isThere = isAbsolute(program)
    ? existsSync(program)
    : directories.some((directory) => isExecutable(join(directory, program)));
  return isThere ? null : `${program} is not installed (Debian: ${names.join(' ')})`;
}

function isExecutable(path: string): boolean {
  return failureOf('', () => accessSync(path, constants.X_OK)) === null;
}

function failureOf(reason: string, action: () => void): string | null {
  try {
    action();
    return null;
  } catch {
    return reason;
  }
}

function mountInANamespace(): void {
  run('unshare', '--mount', 'mount', '-t', 'tmpfs', 'tmpfs', '/tmp');
}

function makeACgroup(): void {
  const probe = join(findCgroupMount() ?? '', `envd-probe-${process.pid}`);
  mkdirSync(probe);
  rmdirSync(probe);
}

function run(program: string, ...args: string[]): void {
  const { status } = spawnSync(program, args, { stdio: 'ignore' });
  if (status !== 0) throw new Error(`'${program}' failed`);
}

/** Whether the kernel tells how a process has ended that is no child: PIDFD_INFO_EXIT, Linux 6.15. */
export function exitIsTold(kernel = release()): boolean {
  const [major = 0, minor = 0] = kernel.split('.').map(Number);
  return major > 6 || (major === 6 && minor >= 15);
}
