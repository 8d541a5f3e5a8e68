import { symlinkSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { widthOf } from '../../src/cli/output/printable.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { EnvctlTerminal, envctl } from '../support/programs/envctl.ts';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
  const long = ['run', '-d', '--tag', 'a-tag-that-is-long', 'sleep', '1000', ...Array(20).fill('0.001')];
  for (let count = 0; count < 12; count++) await envctl(daemon.url, long);
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

const HOME = '\x1b[H';
const linesOf = (shown: string) => stripVTControlCharacters(shown).split(/\r+\n/);

test.each([
  [30, 6],
  [47, 10],
  [120, 8],
])('top --watch fits a window of %d columns and %d rows, and leaves no history', async (cols, rows) => {
  const terminal = new EnvctlTerminal(daemon.url, ['top', '-w', '--interval', '300ms'], {}, { cols, rows });
  await terminal.shows(new RegExp(`(?:${'\\x1b\\[H'}[\\s\\S]*){3}`));
  const [before = '', ...screens] = terminal.screen.split(HOME);
  expect(before).toContain('\x1b[?1049h');
  // The last one may be incomplete.
  for (const screen of screens.slice(0, -1)) {
    const lines = linesOf(screen);
    expect(lines[0]).toMatch(/^ *PID {2}CPU/);
    expect(lines).toHaveLength(rows);
    for (const line of lines) expect(widthOf(line)).toBeLessThanOrEqual(cols);
  }
  expect(terminal.screen).not.toContain('\x1b[2J');
  const from = terminal.screen.length;
  terminal.type('\x03');
  expect(await terminal.exit).toBe(130);
  expect(terminal.screen.slice(from)).toContain('\x1b[?25h\x1b[?1049l');
});

test('ps has age and state, and does not wrap', async () => {
  for (const cols of [40, 80]) {
    const terminal = new EnvctlTerminal(daemon.url, ['ps'], {}, { cols, rows: 30 });
    expect(await terminal.exit).toBe(0);
    const lines = linesOf(terminal.screen);
    expect(lines[0]).toMatch(/^ *PID {2,}AGE {2}STATE {2,}TAG/);
    expect(lines[1]).toMatch(/^ *\d+ {2,}\d+[sm] {2}sleeping {2}a-tag-/);
    for (const line of lines) expect(widthOf(line)).toBeLessThanOrEqual(cols);
  }
  const { processes } = JSON.parse((await envctl(daemon.url, ['ps', '--json'])).stdout);
  expect(processes[0]).toMatchObject({ state: 'S', ageSeconds: expect.any(Number) });
  expect(processes[0].ageSeconds).toBeLessThan(600);
  const { stdout } = await envctl(daemon.url, ['ps', '--all']);
  // What goes to a pipe is whole.
  expect(stdout).toContain(Array(20).fill('0.001').join(' '));
});

test('a link that leads nowhere is not shown as its own target', async () => {
  symlinkSync('nowhere', join(daemon.scratch, 'dangling'));
  const { stdout } = await envctl(daemon.url, ['ls', '-l', daemon.scratch]);
  expect(stdout).toContain('dangling (a link that leads nowhere)');
  const listed = await envctl(daemon.url, ['ls', '--json', join(daemon.scratch, 'dangling')]);
  expect(JSON.parse(listed.stdout)).toMatchObject({ type: 'link', target: null });
});

test('ports lists every listener, with its process and user', async () => {
  const servers = await Promise.all(
    ['0.0.0.0', '127.0.0.1'].map(async (host) => {
      const server = createServer().listen(0, host);
      await new Promise((resolve) => server.once('listening', resolve));
      return server;
    }),
  );
  const { ports } = JSON.parse((await envctl(daemon.url, ['ports', '--json'])).stdout);
  const { stdout } = await envctl(daemon.url, ['ports']);
  for (const [index, server] of servers.entries()) {
    const { port } = server.address() as { port: number };
    const address = ['*', '127.0.0.1'][index];
    expect(ports).toContainEqual(expect.objectContaining({ port, address, user: 'root', pid: process.pid }));
    expect(stdout).toMatch(new RegExp(`^ *${port}  .*root  .*\\(${process.pid}\\)$`, 'm'));
    server.close();
  }
});
