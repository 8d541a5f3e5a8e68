import { spawn } from 'node:child_process';
import process from 'node:process';
import { onTestFinished } from 'vitest';

/** A process that runs this Python program until the test has finished; resolves at its first line of output. Throws if it ends before. */
export async function holder(
  program: string,
  args: readonly string[] = [],
): Promise<{ pid: number; release: () => Promise<void> }> {
  const script = `import fcntl, os, signal, sys, threading, time\n${program}`;
  const child = spawn('python3', ['-u', '-c', script, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, PYTHONUNBUFFERED: '1' },
  });
  const gone = new Promise<void>((done) => child.once('exit', () => done()));
  const { promise, resolve } = Promise.withResolvers<void>();
  child.stdout.once('data', () => resolve());
  const release = async () => {
    child.kill('SIGKILL');
    await gone;
  };
  onTestFinished(release);
  const ended = gone.then(() => {
    throw new Error(`the process has ended with ${child.exitCode ?? child.signalCode} before its first line`);
  });
  await Promise.race([promise, ended]);
  return { pid: child.pid ?? 0, release };
}
