import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { holder } from '../attackers/holder.ts';
import { needs } from './needs.ts';
import { scratch } from './scratch.ts';

/** A tmpfs of this size (`1m`), unmounted when the test has finished. */
export function mountTmpfs(size: string, options = ''): string {
  needs('mounts');
  const directory = scratch();
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${size}${options && `,${options}`}`, 'tmpfs', directory]);
  onTestFinished(() => {
    execFileSync('umount', ['-l', directory]);
  });
  return directory;
}

/** A tmpfs that `block` makes full or read-only, and `release` writable again. */
export function blockableTmpfs(how: 'full' | 'read-only') {
  const directory = mountTmpfs('64k');
  const filler = join(directory, 'filler');
  const remount = (mode: 'ro' | 'rw') => execFileSync('mount', ['-o', `remount,${mode}`, directory]);
  const fill = () => {
    try {
      writeFileSync(filler, Buffer.alloc(128 * 1024));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
    }
  };
  return {
    directory,
    block: () => void (how === 'full' ? fill() : remount('ro')),
    release: () => void (how === 'full' ? rmSync(filler) : remount('rw')),
  };
}

/** A FUSE mount, which counts as a network mount, of another directory: `[mounted, behind it]`. */
export function mountFuse(...options: string[]): [string, string] {
  needs('fuse');
  const [mounted, behind] = [join(scratch(), 'mounted'), scratch()];
  mkdirSync(mounted);
  execFileSync('bindfs', ['--no-allow-other', ...options, behind, mounted]);
  onTestFinished(() => {
    execFileSync('umount', ['-l', mounted]);
  });
  return [mounted, behind];
}

/** A FUSE mount at `directory` that answers nothing, until it is disposed of. */
export async function mountSilent(directory: string): Promise<Disposable> {
  needs('mounts');
  await holder(`
import ctypes
server = os.open("/dev/fuse", os.O_RDWR)
options = b"fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % server
if ctypes.CDLL(None, use_errno=True).mount(b"silent", b"${directory}", b"fuse", 0, options) != 0:
    raise OSError(ctypes.get_errno(), "mount")
print("mounted")
time.sleep(1000)
`);
  return { [Symbol.dispose]: () => void execFileSync('umount', ['-l', directory]) };
}

/** The process that serves a FUSE mount. */
export function serverOf(mounted: string): number {
  const pid = readdirSync('/proc').find((name) => {
    if (!/^\d+$/.test(name)) return false;
    try {
      return readFileSync(`/proc/${name}/cmdline`, 'utf8').split('\0').includes(mounted);
    } catch {
      return false;
    }
  });
  return Number(pid);
}

/** Stops the server of a FUSE mount; the result, which the end of the test calls too, lets it go on. */
export function hang(mounted: string): () => void {
  const server = serverOf(mounted);
  process.kill(server, 'SIGSTOP');
  const goOn = () => void process.kill(server, 'SIGCONT');
  onTestFinished(goOn);
  return goOn;
}
