import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { expect, test } from 'vitest';
import { byPid, byTag, type Clients, connectTo, transcribe } from '../support/clients.ts';
import { Following } from '../support/following.ts';
import { startSupervised } from '../support/supervised.ts';
import { until } from '../support/until.ts';

type StartRequest = Parameters<Clients['process']['start']>[0];

const bash = (script: string) => ({ cmd: 'bash', args: ['-c', script] });
const bytes = (text: string) => new TextEncoder().encode(text);
const input = (kind: 'stdin' | 'pty', text: string) =>
  ({ input: { case: kind, value: bytes(text) } }) as const;
const textOf = (parts: readonly Uint8Array[]) => Buffer.concat(parts).toString();

/** Starts a process and disconnects; returns its pid. */
async function startDetached({ process }: Clients, request: StartRequest): Promise<number> {
  const abort = new AbortController();
  const { value } = await process.start(request, { signal: abort.signal })[Symbol.asyncIterator]().next();
  abort.abort();
  return value?.event?.event.case === 'start' ? value.event.event.value.pid : 0;
}

function follow(clients: Clients, pid: number) {
  const following = new Following(clients, pid);
  return { pid, following, end: following.toEnd() };
}

test('after a kill of the daemon, the next one has its processes: output, input, terminals, exit codes', async () => {
  await using supervised = await startSupervised();
  const clients = connectTo(supervised.daemon.url, 'binary');
  const echo = follow(
    clients,
    await startDetached(clients, {
      process: bash('echo before; while read x; do echo "<$x>"; done; exit 9'),
      tag: 'echo',
    }),
  );
  const terminal = follow(
    clients,
    await startDetached(clients, {
      process: bash('stty -echo; echo on; while read x; do echo "<$x>"; [ "$x" = end ] && exit 3; done'),
      pty: { size: { cols: 80, rows: 24 } },
    }),
  );
  await until('both have begun', () => echo.following.parts.stdout[0] && terminal.following.parts.pty[0]);
  await supervised.crash();

  const { processes } = await clients.process.list({});
  expect(processes.map(({ pid, tag }) => [pid, tag])).toEqual([
    [echo.pid, 'echo'],
    [terminal.pid, undefined],
  ]);
  await clients.process.sendInput({ process: byTag('echo'), input: input('stdin', 'one\n') });
  await clients.process.sendInput({ process: byPid(terminal.pid), input: input('pty', 'two\n') });
  await until('it answers', () => textOf(echo.following.parts.stdout).includes('one'));
  await supervised.crash();
  await clients.process.closeStdin({ process: byTag('echo') });
  await clients.process.sendInput({ process: byPid(terminal.pid), input: input('pty', 'end\n') });
  expect(await echo.end).toMatchObject({ exited: true, exitCode: 9 });
  expect(textOf(echo.following.parts.stdout)).toBe('before\n<one>\n');
  expect(await terminal.end).toMatchObject({ exited: true, exitCode: 3 });
  expect(textOf(terminal.following.parts.pty)).toBe('on\r\n<two>\r\n<end>\r\n');
});
