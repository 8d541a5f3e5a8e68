import { type ChildProcess, spawn } from 'node:child_process';
import { lchownSync, symlinkSync } from 'node:fs';
import process from 'node:process';
import { onTestFinished } from 'vitest';

/** An untrusted user of the guest. */
export const STRANGER = 65_534;

/** Makes a symbolic link that belongs to that user. */
export function linkOfStranger(target: string, path: string): void {
  symlinkSync(target, path);
  lchownSync(path, STRANGER, STRANGER);
}

/**
 * A process of that user that exchanges two names of his directory until the test has finished, with pauses in
 * milliseconds.
 */
export async function exchanger(left: string, right: string, pauseMs = 0): Promise<ChildProcess> {
  const script = `
import ctypes, os, time
os.setgroups([]); os.setgid(${STRANGER}); os.setuid(${STRANGER})
libc = ctypes.CDLL(None)
left, right = ${JSON.stringify(left)}.encode(), ${JSON.stringify(right)}.encode()
print("ready", flush=True)
while os.getppid() == ${process.pid}:
    libc.renameat2(-100, left, -100, right, 2)
    if ${pauseMs}: time.sleep(${pauseMs} / 1000)
`;
  const child = spawn('python3', ['-c', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  const { promise, resolve } = Promise.withResolvers<void>();
  child.stdout.once('data', () => resolve());
  onTestFinished(async () => {
    const gone = new Promise((done) => child.once('exit', done));
    child.kill('SIGKILL');
    await gone;
  });
  await promise;
  return child;
}
