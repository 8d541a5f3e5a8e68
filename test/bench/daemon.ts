import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { DAEMON_PROGRAM } from '../support/programs/programs.ts';

/** The flags of `npm start`, unless the environment has others to compare. */
export const DAEMON_FLAGS = (
  process.env.DAEMON_FLAGS ?? '--expose-gc --max-semi-space-size=2 --no-parallel-scavenge'
)
  .split(' ')
  .filter(Boolean);

/** The real daemon with its flags. */
export function startBenchDaemon(args: readonly string[] = []): Promise<TestDaemon> {
  return startDaemon({ args, command: [process.execPath, ...DAEMON_FLAGS, DAEMON_PROGRAM] });
}
