import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** What the hooks have to know. It is in a file, because each hook is a process of its own. */
export interface Settings {
  readonly backend: 'container' | 'qemu';
  /** The directory of this run, with the sandboxes. */
  readonly directory: string;
  /** The cgroup below which each sandbox has its own. */
  readonly cgroup: string;
  /** The built root file system of containers, or the directory with kernel, initrd and disk of virtual machines. */
  readonly image: string;
  /** The built daemon. */
  readonly daemon: string;
  /** The most memory of one sandbox, in MiB. */
  readonly memory: number;
  /** How qemu runs the processors of virtual machines. */
  readonly accelerator: 'tcg' | 'kvm';
}

const NAME = 'settings.json';

export function writeSettings(settings: Settings): void {
  writeFileSync(join(settings.directory, NAME), JSON.stringify(settings), { mode: 0o600 });
}

export function readSettings(directory: string): Settings {
  return JSON.parse(readFileSync(join(directory, NAME), 'utf8')) as Settings;
}

/** The directory of one sandbox. */
export function homeOf({ directory }: Settings, id: string): string {
  return join(directory, 'sandboxes', id);
}
