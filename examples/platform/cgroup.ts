import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { run, until } from './tools.ts';

/** Controllers with which sandboxes are limited. On machines that have them in cgroup v1 there are none in v2, and nothing is limited. */
const CONTROLLERS = ['memory', 'pids', 'cpu'];
/** The most processes and threads of one sandbox. */
const TASKS = 4096;
/** The most cgroups that a sandbox may make in its own one, because each takes memory of the machine, and time when it is removed. */
const CGROUPS = 4096;
const LIMIT_MS = 20_000;

/** The cgroup v2 of the platform and those of its sandboxes. */
export class SandboxCgroup {
  readonly path: string;

  constructor(parent: string, id: string) {
    this.path = join(parent, id);
  }

  /** Makes the parent of all, whose children can be limited as far as the kernel lets them. */
  static makeParent(path: string): void {
    mkdirSync(path, { recursive: true });
    for (const controller of CONTROLLERS)
      for (const each of [join(path, '..'), path])
        try {
          writeFileSync(join(each, 'cgroup.subtree_control'), `+${controller}`);
        } catch {
          // The controller is not in cgroup v2 here.
        }
  }

  /** Whether the memory and the tasks of sandboxes below `parent` are limited. */
  static isLimited(parent: string): boolean {
    return readFileSync(join(parent, 'cgroup.subtree_control'), 'utf8').includes('memory');
  }

  make(memoryMiB: number): void {
    mkdirSync(this.path);
    this.#limit('memory.max', String(memoryMiB * 2 ** 20));
    this.#limit('memory.swap.max', '0');
    this.#limit('pids.max', String(TASKS));
    this.#limit('cgroup.max.descendants', String(CGROUPS));
  }

  #limit(file: string, value: string): void {
    if (existsSync(join(this.path, file))) writeFileSync(join(this.path, file), value);
  }

  get exists(): boolean {
    return existsSync(this.path);
  }

  get isPopulated(): boolean {
    return this.#events().includes('populated 1');
  }

  /** Resolves when everything in it stands still, or goes on. Throws when it does not, for example because a process waits for a disk. */
  async setFrozen(isFrozen: boolean): Promise<void> {
    const wanted = isFrozen ? '1' : '0';
    writeFileSync(join(this.path, 'cgroup.freeze'), wanted);
    try {
      await until(`freeze ${wanted}`, LIMIT_MS, () => this.#events().includes(`frozen ${wanted}`));
    } catch (error) {
      // What has not been paused goes on.
      writeFileSync(join(this.path, 'cgroup.freeze'), '0');
      throw error;
    }
  }

  /** Kills everything in it, also what is frozen, and removes it. Does nothing when it does not exist. */
  async remove(): Promise<void> {
    if (!this.exists) return;
    writeFileSync(join(this.path, 'cgroup.kill'), '1');
    await until('the end of its processes', LIMIT_MS, () => !this.isPopulated);
    // A sandbox can make cgroups that are deeper than a path can be long. Files of cgroups cannot be removed, and need not be.
    run('find', [this.path, '-depth', '-type', 'd', '-delete']);
  }

  #events(): string {
    return readFileSync(join(this.path, 'cgroup.events'), 'utf8');
  }
}
