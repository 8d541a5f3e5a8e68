import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { findCgroupMount } from '../../src/daemon/linux/cgroups/cgroup-mounts.ts';
import { reasonAgainst } from '../support/machine/machine.ts';

/**
 * A program that was changed by chance may remove every file, freeze or kill every process, or change routes, as root. So
 * it runs where that does no harm: with the root file system and the devices below an overlay in memory, a /sys and a
 * /proc of its own, no processes, network or terminals but its own, and in one cgroup, which is all that it sees of them.
 * A file system in memory also refuses to be frozen.
 */
const SET_UP = `
space=/mnt
mount --make-rprivate /
mount -t tmpfs space $space
mkdir $space/upper $space/work $space/root $space/devices $space/devices-work
mount -t overlay root -o lowerdir=/,upperdir=$space/upper,workdir=$space/work $space/root
cd $space/root
mount -t overlay dev -o lowerdir=/dev,upperdir=$space/devices,workdir=$space/devices-work dev
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 pts dev/pts
mount -t tmpfs shm dev/shm
mount -t proc proc proc
mount -t sysfs sys sys
mount -t cgroup2 cgroup sys/fs/cgroup
mount -t tmpfs run run
mount -t tmpfs scratch var/tmp
chmod 1777 var/tmp dev/shm
ip link set lo up
# Not replaced by it: a shell as the first process reaps orphans.
chroot . /bin/sh -euc "$0"
exit $?
`;

const NAMESPACES = ['--mount', '--pid', '--cgroup', '--ipc', '--net', '--fork', '--kill-child=SIGKILL'];
const PROGRAMS = ['unshare', 'mount', 'chroot', 'ip'];

export interface Outcome {
  /** Null: it was ended at the limit. */
  readonly code: number | null;
  readonly stdout: string;
}

/** Why nothing can be isolated here, or null. */
export function reasonNotToRun(): string | null {
  for (const requirement of ['root', 'mounts', 'cgroup v2']) {
    const reason = reasonAgainst(requirement);
    if (reason !== null) return reason;
  }
  const directories = ['/usr/bin', '/usr/sbin', '/bin', '/sbin'];
  const missing = PROGRAMS.find(
    (name) => !directories.some((directory) => existsSync(join(directory, name))),
  );
  return missing ? `${missing} is not installed` : null;
}

/** Runs shell scripts in isolation, one at a time; nothing of them stays. */
export class Isolation implements AsyncDisposable {
  #runs = 0;
  /**
   * That of the script that runs. Each has a new one: below one that was killed once, starts into cgroups end by SIGKILL
   * (seen with Linux 6.18).
   */
  #cgroup: string | null = null;

  /** `environment` is added to that of this process. */
  async run(
    script: string,
    environment: Readonly<Record<string, string>>,
    limitMs: number,
  ): Promise<Outcome> {
    this.#runs += 1;
    // Mutants are in the sources, not in the programs that `npm test` has built.
    const { ENVD_TEST_IMAGE: _image, ENVD_TEST_LONG: _long, ...own } = process.env;
    const cgroup = join(findCgroupMount() ?? '', `envd-mutants-${process.pid}-${this.#runs}`);
    mkdirSync(cgroup);
    this.#cgroup = cgroup;
    const enter = `echo $$ >'${cgroup}/cgroup.procs' && exec unshare ${NAMESPACES.join(' ')} /bin/sh -euc "$0" "$1"`;
    const child = spawn('/bin/sh', ['-euc', enter, SET_UP, script], {
      stdio: ['ignore', 'pipe', 'ignore'],
      env: { ...own, ...environment, TMPDIR: '/var/tmp' },
    });
    let isOver = false;
    const timer = setTimeout(() => {
      isOver = true;
      kill(cgroup);
    }, limitMs);
    const output = text(child.stdout);
    const [code] = (await once(child, 'exit')) as [number | null];
    clearTimeout(timer);
    await this[Symbol.asyncDispose]();
    return { code: isOver ? null : code, stdout: await output };
  }

  /** Ends what still runs. */
  async [Symbol.asyncDispose](): Promise<void> {
    const cgroup = this.#cgroup;
    if (cgroup === null) return;
    this.#cgroup = null;
    kill(cgroup);
    while (/^populated 1$/m.test(readFileSync(join(cgroup, 'cgroup.events'), 'utf8')))
      await new Promise((resolve) => setTimeout(resolve, 5));
    removeTree(cgroup);
  }
}

const kill = (cgroup: string) => writeFileSync(join(cgroup, 'cgroup.kill'), '1');
const childrenOf = (cgroup: string) =>
  readdirSync(cgroup, { withFileTypes: true }).flatMap((entry) => (entry.isDirectory() ? [entry.name] : []));

function removeTree(cgroup: string): void {
  for (const name of childrenOf(cgroup)) removeTree(join(cgroup, name));
  rmdirSync(cgroup);
}
