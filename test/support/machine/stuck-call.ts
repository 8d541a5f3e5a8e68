import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { holder } from '../attackers/holder.ts';
import { until } from '../until.ts';
import { hang, mountFuse, serverOf } from './mounts.ts';

/** Whether a thread, or all of a process, waits uninterruptibly; `proc`: its directory in /proc. */
export const isWaiting = (proc: string) => /^State:\tD/m.test(readFileSync(`${proc}/status`, 'utf8'));

/**
 * Keeps a process in a system call, with the locks that the call holds: its memory `page` (64 KiB) is to be filled by a FUSE
 * server that is stopped. `open` and `call` are Python, with `libc`. Resolves when it is stuck, with a function that ends it.
 */
export async function stuckCall(open: string, call: string): Promise<() => Promise<void>> {
  const [mounted, behind] = mountFuse();
  writeFileSync(join(behind, 'page'), Buffer.alloc(65_536));
  const { pid, release } = await holder(`
import ctypes
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
page = libc.mmap(None, 65536, 3, 1, os.open(${JSON.stringify(join(mounted, 'page'))}, os.O_RDWR), 0)
${open}
os.kill(${serverOf(mounted)}, signal.SIGSTOP)
print('stopped')
${call}
`);
  const goOn = hang(mounted);
  await until('the lock is held', () => isWaiting(`/proc/${pid}`));
  return async () => {
    goOn();
    await release();
  };
}
