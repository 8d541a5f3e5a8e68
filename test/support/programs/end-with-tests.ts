import type { ChildProcess } from 'node:child_process';

const running = new Set<ChildProcess>();
const endAll = () => {
  for (const child of running) child.kill('SIGKILL');
};
process.once('exit', endAll);
process.once('SIGTERM', () => {
  endAll();
  process.kill(process.pid, 'SIGKILL');
});

/**
 * Kills a program when this process of the tests ends. A test that times out is given up together with what it has started, and
 * the runner, which ends this process by SIGTERM, would wait for ever for a program that still has its standard error.
 */
export function endWithTests(child: ChildProcess): void {
  running.add(child);
  child.once('exit', () => running.delete(child));
}
