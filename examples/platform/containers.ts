import { chownSync, existsSync, lstatSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Backend, Made } from './backend.ts';
import { SandboxCgroup } from './cgroup.ts';
import { connectContainer, findPlace, freePlace, takePlace } from './network.ts';
import { configuration, FIRST_ID } from './oci.ts';
import { homeOf, type Settings } from './settings.ts';
import { isAnswering, removeTree, run, tail } from './tools.ts';

/** Files of its cgroup that the container may write (Documentation/admin-guide/cgroup-v2.rst, "Delegation"). */
const DELEGATED = ['', 'cgroup.procs', 'cgroup.subtree_control', 'cgroup.threads'];

/** The most inotify instances of each user of a container. */
const INOTIFY_INSTANCES = 32;
/** How long a daemon may take to answer, in ms. */
const ANSWER_MS = 60_000;
/** How much of the log of a container an error quotes, in characters. */
const QUOTED = 400;

/** Containers of crun: each has namespaces of its own, and a copy-on-write view of one root file system. */
export class Containers implements Backend {
  readonly #settings: Settings;

  constructor(settings: Settings) {
    this.#settings = settings;
  }

  async prepare(): Promise<void> {}

  async create(id: string): Promise<Made> {
    const { image, daemon, memory, directory } = this.#settings;
    const home = homeOf(this.#settings, id);
    const root = join(home, 'root');
    for (const each of [root, join(home, 'upper'), join(home, 'work')]) mkdirSync(each, { recursive: true });
    // The root directory of the container.
    chownSync(join(home, 'upper'), FIRST_ID, FIRST_ID);
    const layers = `lowerdir=${image},upperdir=${home}/upper,workdir=${home}/work`;
    run('mount', ['-t', 'overlay', '-o', layers, 'overlay', root]);
    const cgroup = this.#cgroupOf(id);
    cgroup.make(memory);
    for (const file of DELEGATED) chownSync(join(cgroup.path, file), FIRST_ID, FIRST_ID);
    const place = takePlace(directory, id);
    const flags = ['--metadata-service=off', '--log-level=warn', `--forward-address=${place.address}`];
    const args = ['tini', '--', '/opt/envd/bin/envd', ...flags];
    writeFileSync(
      join(home, 'config.json'),
      JSON.stringify(configuration({ hostname: id, root, daemon, args })),
    );
    this.#createIn(cgroup, home, id);
    const pid = Number(readFileSync(join(home, 'pid'), 'utf8'));
    limitInotify(pid);
    connectContainer(place, pid);
    this.#crun('start', id);
    await this.#answers(place.address, cgroup, home);
    return { address: place.address };
  }

  async #answers(address: string, cgroup: SandboxCgroup, home: string): Promise<void> {
    const end = performance.now() + ANSWER_MS;
    while (!(await isAnswering(address))) {
      const hasEnded = !cgroup.isPopulated;
      if (!hasEnded && performance.now() < end) continue;
      const log = tail(join(home, 'log'), QUOTED);
      throw new Error(`the container ${hasEnded ? 'has ended' : 'does not answer'}: ${log}`);
    }
  }

  /** Makes the container from within its cgroup, which it inherits. */
  #createIn(cgroup: SandboxCgroup, home: string, id: string): void {
    const create = ['create', `--bundle=${home}`, `--pid-file=${home}/pid`, id];
    // Node has raised the soft limit of descriptors, which programs of clients would inherit.
    // They would have a higher nice value of this program, too, because a daemon in a container may not lower it.
    const script = `ulimit -S -n 1024 && renice 0 $$ >/dev/null && echo $$ >"$0/cgroup.procs" && exec "$@" >'${home}/log' 2>&1 </dev/null`;
    try {
      run('sh', ['-c', script, cgroup.path, 'crun', ...this.#common, ...create]);
    } catch (error) {
      throw new Error(tail(join(home, 'log'), QUOTED), { cause: error });
    }
  }

  /** The memory stays where it is. */
  async pause(id: string): Promise<void> {
    await this.#cgroupOf(id).setFrozen(true);
  }

  async resume(id: string): Promise<void> {
    const cgroup = this.#cgroupOf(id);
    if (!cgroup.isPopulated) throw new Error('the container has ended');
    await cgroup.setFrozen(false);
  }

  async remove(id: string): Promise<void> {
    const { directory } = this.#settings;
    const home = homeOf(this.#settings, id);
    await this.#cgroupOf(id).remove();
    if (existsSync(join(directory, 'crun', id))) this.#crun('delete', '--force', id);
    if (isMountedOn(join(home, 'root'))) run('umount', ['--lazy', join(home, 'root')]);
    removeTree(home);
    const place = findPlace(directory, id);
    if (place) freePlace(directory, place);
  }

  #cgroupOf(id: string): SandboxCgroup {
    return new SandboxCgroup(this.#settings.cgroup, id);
  }

  get #common(): readonly string[] {
    // The cgroup is made, limited and frozen here.
    return [`--root=${this.#settings.directory}/crun`, '--cgroup-manager=disabled'];
  }

  #crun(command: string, ...args: readonly string[]): void {
    run('crun', [...this.#common, command, ...args]);
  }
}

/** Limits the inotify instances of each user of a container, because those of all containers count for one user of the machine. */
function limitInotify(pid: number): void {
  const script = `echo ${INOTIFY_INSTANCES} >/proc/sys/user/max_inotify_instances`;
  run('nsenter', ['--user', `--target=${pid}`, 'sh', '-c', script]);
}

/** Whether a file system is mounted there. The list of mounts has other paths where symbolic links lead to them. */
function isMountedOn(path: string): boolean {
  return existsSync(path) && lstatSync(path).dev !== lstatSync(join(path, '..')).dev;
}
