import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { holder } from '../../support/attackers/holder.ts';
import { connectTo, transcribe } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { startDaemon } from '../../support/programs/daemon.ts';
import { daemonCommand } from '../../support/programs/programs.ts';

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

/** The controlling terminal of a process, 0 if it has none. Source: proc_pid_stat(5). */
function terminalOf(pid: number): number {
  const [, , , , terminal] = readFileSync(`/proc/${pid}/stat`, 'latin1').split(') ').at(-1)?.split(' ') ?? [];
  return Number(terminal);
}

test('a terminal that a client names does not become that of the daemon, a leader of its session', async () => {
  await using daemon = await startDaemon({ command: ['setsid', ...daemonCommand()] });
  const path = join(daemon.scratch, 'terminal');
  await holder(
    `ends = os.openpty(); os.symlink(os.ttyname(ends[1]), '${path}'); print('open'); time.sleep(1000)`,
  );
  const { process, filesystem } = connectTo(daemon.url);
  await expect(transcribe(process.start({ process: { cmd: path } }))).rejects.toThrow('EACCES');
  await filesystem.stat({ path });
  await fetch(`${daemon.url}/files?path=${path}`);
  await fetch(`${daemon.url}/files?path=${path}`, { method: 'POST', body: 'x' });
  expect(terminalOf(daemon.pid)).toBe(0);
});
