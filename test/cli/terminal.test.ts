import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { spawn as openTerminal } from 'node-pty';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { TestSocket } from '../support/clients/websocket.ts';
import { needs } from '../support/machine/needs.ts';
import { scratch } from '../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { EnvctlTerminal, envctl, envctlUntil } from '../support/programs/envctl.ts';
import { owned } from '../support/programs/owned.ts';
import { envctlCommand } from '../support/programs/programs.ts';
import { startFront } from '../support/servers/front.ts';
import { startRelay } from '../support/servers/relay.ts';
import { until } from '../support/until.ts';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

const SHELL = [
  'shell',
  '--shell',
  '/bin/bash',
  '-e',
  'PS1=READY>',
  '-e',
  'HOME=/nonexistent',
  '-e',
  'BASH_ENV=',
];

async function openShell(url = daemon.url, ...args: string[]): Promise<EnvctlTerminal> {
  const terminal = new EnvctlTerminal(url, [...SHELL, ...args]);
  await terminal.shows(/[#$>] ?$/);
  return terminal;
}

test('a shell has the size of the terminal, follows its changes, and passes its exit code on', async () => {
  const terminal = await openShell();
  terminal.type('stty size; echo "term=$TERM"\r');
  await terminal.shows(/30 100\r\n/);
  await terminal.shows(/term=xterm-256color/);
  // A shell of its own, which ^C reaches also between two commands.
  terminal.type(`sh -c 'while stty size; do sleep 0.1; done'\r`);
  const from = terminal.screen.length;
  terminal.resize(77, 22);
  await terminal.shows(/22 77\r\n/, from);
  terminal.type('\x03');
  await terminal.shows(/\^C[\s\S]*[#$>] ?$/, from);
  terminal.type('exit 9\r');
  expect(await terminal.exit).toBe(9);
});

test('^C and ^Z go to the shell, not to envctl', async () => {
  const terminal = await openShell();
  // The job writes this itself: before it is in the foreground, the shell would get the signal.
  terminal.type(`sh -c 'echo begins; exec sleep 100'\r`);
  await terminal.shows(/[\r\n]begins\r\n/);
  terminal.type('\x03');
  await terminal.shows(/\^C[\s\S]*[#$>] ?$/);
  terminal.type('echo "code=$?"\r');
  await terminal.shows(/code=130/);
  terminal.type('echo go; cat\r');
  await terminal.shows(/[\r\n]go\r\n/);
  terminal.type('x\r');
  await terminal.shows(/x\r\nx\r\n/);
  terminal.type('\x1a');
  // What is typed before the prompt is there may be dropped by the shell.
  await terminal.shows(/Stopped[\s\S]*[#$>] ?$/);
  terminal.type('kill -9 %1; disown %1; exit 6\r');
  expect(await terminal.exit).toBe(6);
});

test('a paste of 1 MB arrives whole', async () => {
  const terminal = await openShell();
  terminal.type('stty -echo -icanon; head -c 1000000 | sha256sum; stty echo icanon; echo pasted\r');
  await terminal.shows(/echo pasted\r\n/);
  const line = 'The quick brown fox jumps over the lazy dog, forty bytes or more.\n';
  const text = line.repeat(Math.ceil(1_000_000 / line.length)).slice(0, 1_000_000);
  const digest = createHash('sha256').update(text).digest('hex');
  terminal.type(text);
  await terminal.shows(new RegExp(digest));
  await terminal.shows(/\r\npasted/);
  terminal.type('exit 2\r');
  expect(await terminal.exit).toBe(2);
});

test('a connection that is killed in the middle comes back to the same shell', async () => {
  const relay = await owned(startRelay(daemon.port));
  const terminal = await openShell(`http://127.0.0.1:${relay.port}`);
  terminal.type('mark=still-here\r');
  await terminal.shows(/mark=still-here\r\n/);
  relay.reset();
  await terminal.shows(/connected again, nothing was lost/);
  const from = terminal.screen.length;
  terminal.type('echo "[$mark]"\r');
  await terminal.shows(/\[still-here\]\r\n/, from);
  terminal.type('exit 3\r');
  expect(await terminal.exit).toBe(3);
});

test('the escape key detaches, shows help, sends itself and kills; attach comes back', async () => {
  const terminal = await openShell(daemon.url, '--tag', 'kept');
  terminal.type('word=kept-word\r');
  await terminal.shows(/word=kept-word\r\n/);
  terminal.type('\x1d?');
  await terminal.shows(/\^\] d detaches.*\^\] d detaches/s);
  terminal.type('\x1dd');
  expect(await terminal.exit).toBe(0);
  expect(terminal.screen).toMatch(/detached; the process goes on as \d+/);
  const again = new EnvctlTerminal(daemon.url, ['attach', 'kept', '--escape', '^A']);
  await again.shows(/kept-word/);
  const from = again.screen.length;
  again.type('cat -v\r');
  await again.shows(/cat -v\r\n/, from);
  again.type('\x1d\x01\x01\r');
  await again.shows(/\^\]\^A/, from);
  again.type('\x01k');
  expect(await again.exit).toBe(137);
});

test('attach shows the screen of a program, although the output that drew it is not kept any more', async () => {
  await writeFile(join(daemon.scratch, 'text'), 'rose\ntulip\n');
  const cmd = 'head -c 3000000 /dev/zero | tr "\\0" x; exec vi -u NONE -N text';
  const query = new URLSearchParams({ cwd: daemon.scratch, cmd, tag: 'editor', cols: '100', rows: '30' });
  const first = await TestSocket.open(daemon.url, `/terminal?${query}`);
  await first.shows(/rose[\s\S]*tulip/);
  first.send(Buffer.from('Alily\x1b'));
  await first.shows(/lily/);
  const terminal = new EnvctlTerminal(daemon.url, ['attach', 'editor']);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: This is the alternate screen.
  await terminal.shows(/\x1b\[\?(\d+;)*1049[;h][\s\S]*roselily[\s\S]*tulip/);
  terminal.type('\x1dd');
  expect(await terminal.exit).toBe(0);
  first.send(Buffer.from(':q!\r'));
  expect(await first.message('end')).toMatchObject({ exitCode: 0 });
});

test('the terminal is as before afterwards', async () => {
  const { spawn } = await import('node-pty');
  const { execPath } = process;
  const program = new URL('../../src/cli/main.ts', import.meta.url).pathname;
  const script = `stty -a >"$D/before"; "${execPath}" "${program}" shell --url "$URL" </dev/tty; stty -a >"$D/after"; cmp "$D/before" "$D/after" && echo same`;
  const terminal = spawn('sh', ['-c', script], {
    env: { ...process.env, D: daemon.scratch, URL: daemon.url },
  });
  let screen = '';
  const same = new Promise<void>((resolve) =>
    terminal.onData((text) => {
      if (/[#$] $/.test(screen + text) && !screen.includes('exit')) terminal.write('exit\r');
      screen += text;
      if (screen.includes('same')) resolve();
    }),
  );
  await same;
  expect(screen).toContain('same');
});

test('without a terminal of its own, input is what is typed, and its end is ^D', async () => {
  const result = await envctl(daemon.url, ['run', '-t', 'cat'], { input: 'roses\n' });
  expect(result.code).toBe(0);
  expect(result.stdout).toMatch(/roses\r\nroses\r\n/);
});

test('vim works: what it writes is in the file', async () => {
  needs('vi');
  const terminal = new EnvctlTerminal(daemon.url, [
    ...['run', '-t', '--cwd', daemon.scratch, 'vi', '-u', 'NONE', '-N', 'poem.txt'],
  ]);
  await terminal.shows(/poem\.txt/);
  terminal.type('iroses are red\x1b');
  await terminal.shows(/roses are red/);
  terminal.type(':wq\r');
  expect(await terminal.exit).toBe(0);
  expect((await envctl(daemon.url, ['run', 'cat', `${daemon.scratch}/poem.txt`])).stdout).toBe(
    'roses are red\n',
  );
});

/** What a program such as vim makes of a terminal, and never takes back. The echo of the line is not what it writes. */
const TAKEN = "printf '\\033[?1049;25l\\033[?1049h\\033[?1002;1006h\\033=\\033[>1u\\033[7mtak''en'";
const UNDONE = ['\x1b[?1049l', '\x1b[?25h', '\x1b[?1002l', '\x1b[?1006l', '\x1b>', '\x1b[<9u', '\x1b[m'];

test.each<[string, (terminal: EnvctlTerminal) => void, number]>([
  ['the shell ends', (terminal) => terminal.type('exit 7\r'), 7],
  ['it is detached', (terminal) => terminal.type('\x1dd'), 0],
  ['it is killed', (terminal) => terminal.type('\x1dk'), 137],
  ['envctl gets SIGTERM', (terminal) => process.kill(terminal.pid, 'SIGTERM'), 143],
  ['envctl gets SIGHUP', (terminal) => process.kill(terminal.pid, 'SIGHUP'), 129],
])('the modes of the terminal are undone when %s', async (_when, end, code) => {
  const terminal = await openShell();
  terminal.type(`${TAKEN}\r`);
  await terminal.shows(/7mtaken/);
  const from = terminal.screen.length;
  end(terminal);
  expect(await terminal.exit).toBe(code);
  const left = terminal.screen.slice(from);
  for (const sequence of UNDONE) expect(left).toContain(sequence);
});

test('a signal right when the terminal gets raw leaves it as it was', async () => {
  const programs = scratch();
  // envctl calls it in the middle of its changes.
  writeFileSync(join(programs, 'stty'), '#!/bin/sh\nkill -TERM $PPID\ncommand -p stty "$@"\n', {
    mode: 0o755,
  });
  const [node, program] = envctlCommand();
  const script = 'PATH=$0:$PATH "$@"; echo "code=$?"; command -p stty -a';
  const terminal = openTerminal('sh', ['-c', script, programs, node, program, ...SHELL], {
    env: { PATH: process.env.PATH, ENVCTL_URL: daemon.url, HOME: '/dev/null/none' },
    cols: 200,
  });
  let screen = '';
  terminal.onData((text) => {
    screen += text;
  });
  await new Promise((resolve) => terminal.onExit(resolve));
  expect(screen).toMatch(/code=143\r\n[\s\S]*\sopost\s[\s\S]*\sicanon\s/);
});

test('a terminal that nothing has changed is left alone', async () => {
  const terminal = await openShell();
  terminal.type("printf '\\033[?25l\\033[?1049h'; printf '\\033[?25h\\033[?1049l'; exit\r");
  await terminal.exit;
  const [, after = ''] = terminal.screen.split('\x1b[?25h\x1b[?1049l');
  expect(after).not.toContain('\x1b[?1049l');
});

test('an outage is one line, however many attempts it takes', async () => {
  let refusals = 0;
  const proxy = await owned(
    startFront(daemon.url, {
      answers({ url = '' }, response) {
        if (!url.endsWith('/Connect') || refusals === 3) return false;
        refusals++;
        response
          .writeHead(503, { 'content-type': 'application/json' })
          .end('{"code":"unavailable","message":"not yet"}');
        return true;
      },
    }),
  );
  const running = await envctlUntil(proxy.url, ['run', 'sh', '-c', 'echo begun; sleep 1000'], /begun/);
  proxy.closeAllConnections();
  await until('it is connected again', () => running.stderr().includes('connected again'));
  expect(refusals).toBe(3);
  expect(running.stderr().match(/trying again/g)).toHaveLength(1);
});
