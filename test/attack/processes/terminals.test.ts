import { expect, test } from 'vitest';
import { connectTo, transcribe } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { startDaemon } from '../../support/programs/daemon.ts';

/*
 * A process gives up its controlling terminal and ends, while one that it has started goes on writing to the terminal:
 * no hang-up stops that. The daemon takes what was written before the end, and little more.
 */

/** More than a terminal holds and the daemon reads at once. */
const MOST_BYTES = 128 * 1024;
/** How long the daemon finds something to read is chance: in every fourth round it read more than that, up to 44 MB. */
const ROUNDS = 20;

/** The writer begins when the leader has ended, and ends on a hang-up (EIO). */
const PROGRAM = `
import fcntl, os, signal, termios
signal.signal(signal.SIGHUP, signal.SIG_IGN)
fcntl.ioctl(0, termios.TIOCNOTTY)
leader = os.getpid()
if os.fork() == 0:
    while os.getppid() == leader: pass
    try:
        while True: os.write(1, b"y" * 4000)
    except OSError:
        os._exit(0)
os.write(1, b"last words")
`;

test('what others go on writing to the terminal of a process that has ended is not waited for', async () => {
  needs('root');
  await using daemon = await startDaemon();
  const { process } = connectTo(daemon.url, 'binary');
  for (let round = 0; round < ROUNDS; round++) {
    const started = process.start({ process: { cmd: 'python3', args: ['-c', PROGRAM] }, pty: {} });
    const { pty, end } = await transcribe(started);
    expect(end?.status).toBe('exit status 0');
    expect(String(pty)).toMatch(/^last words/);
    expect(pty.length).toBeLessThan(MOST_BYTES);
  }
});
