import {
  AuthenticationError,
  CommandExitError,
  InvalidArgumentError,
  NotFoundError,
  TimeoutError,
} from 'e2b';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Guest, rejection, rejections, Seen, startGuest } from '../support/sandbox.ts';

let guest: Guest;
let commands: Guest['sandbox']['commands'];
beforeAll(async () => {
  guest = await startGuest();
  commands = guest.sandbox.commands;
});
afterAll(() => guest[Symbol.asyncDispose]());

test('the sandbox is running', async () => {
  expect(await guest.sandbox.isRunning()).toBe(true);
});

describe('a command', () => {
  test('gives stdout, stderr and exit code', async () => {
    const result = await commands.run('echo out; echo err >&2');
    expect(result).toEqual({ exitCode: 0, stdout: 'out\n', stderr: 'err\n', error: undefined });
  });

  test('that fails throws its result', async () => {
    const error = await rejection(commands.run('echo half; exit 7'));
    expect(error).toBeInstanceOf(CommandExitError);
    expect(error).toMatchObject({ exitCode: 7, stdout: 'half\n', error: 'exit status 7' });
  });

  test('that dies of a signal says so', async () => {
    const error = await rejection(commands.run('kill -TERM $$'));
    expect(error).toBeInstanceOf(CommandExitError);
    expect(error).toMatchObject({ exitCode: -1, error: 'signal: terminated' });
  });

  test('streams its output while it runs', async () => {
    const [out, err] = [new Seen<string>(), new Seen<string>()];
    const opts = { background: true, stdin: true, onStdout: out.add, onStderr: err.add } as const;
    const handle = await commands.run('echo first; echo oops >&2; read go; echo $go', opts);
    await out.until((texts) => texts.join('') === 'first\n');
    await err.until((texts) => texts.join('') === 'oops\n');
    expect(handle.exitCode).toBeUndefined();
    await handle.sendStdin('second\n');
    expect(await handle.wait()).toMatchObject({ exitCode: 0, stdout: 'first\nsecond\n', stderr: 'oops\n' });
  });

  test('keeps characters whole that arrive in pieces, and much of them', async () => {
    // Time between the halves makes two messages of them; half a character is no event of this client.
    const { stdout } = await commands.run(
      "printf '\\xc3'; sleep 0.05; printf '\\xbc\\n'; seq -f 'ü%g' 20000",
    );
    expect(stdout).toBe(`ü\n${Array.from({ length: 20000 }, (_, i) => `ü${i + 1}\n`).join('')}`);
  });

  test('has the environment and the directory that were asked for', async () => {
    const envs = { GREETING: 'hello world' };
    const { stdout } = await commands.run('echo "$GREETING"; pwd; id -un', { envs, cwd: guest.directory });
    expect(stdout).toBe(`hello world\n${guest.directory}\nroot\n`);
  });

  test('runs as the user that was asked for', async () => {
    const { stdout } = await commands.run('id -un; echo $LOGNAME', { user: 'daemon' });
    expect(stdout).toBe('daemon\ndaemon\n');
  });

  test('without stdin reads the end of it at once', async () => {
    expect((await commands.run('cat; echo end')).stdout).toBe('end\n');
  });

  test('is killed when its time is up', async () => {
    const handle = await commands.run('sleep 300', { background: true, timeoutMs: 300 });
    expect(await rejection(handle.wait())).toBeInstanceOf(TimeoutError);
    const end = await rejection(commands.connect(handle.pid).then((again) => again.wait()));
    expect(end).toMatchObject({ exitCode: -1, error: 'signal: killed' });
  });

  test('without a time limit goes on', async () => {
    // Longer than the limit of 0 ms that it must not be taken for.
    expect((await commands.run('sleep 0.2; echo done', { timeoutMs: 0 })).stdout).toBe('done\n');
  });
});

describe('a background command', () => {
  test('takes stdin until it is closed', async () => {
    const handle = await commands.run('cat', { background: true, stdin: true });
    await handle.sendStdin('one ');
    await commands.sendStdin(handle.pid, new TextEncoder().encode('two'));
    await handle.closeStdin();
    expect(await handle.wait()).toMatchObject({ exitCode: 0, stdout: 'one two' });
  });

  test('is listed while it runs, with what it was started with', async () => {
    const opts = { background: true, stdin: true, envs: { A: 'b' }, cwd: '/tmp' } as const;
    const handle = await commands.run('read x', opts);
    expect((await commands.list()).find(({ pid }) => pid === handle.pid)).toEqual({
      pid: handle.pid,
      cmd: '/bin/bash',
      args: ['-l', '-c', 'read x'],
      envs: { A: 'b' },
      cwd: '/tmp',
    });
    await commands.sendStdin(handle.pid, '\n');
    await handle.wait();
    expect((await commands.list()).some(({ pid }) => pid === handle.pid)).toBe(false);
  });

  test('is killed once', async () => {
    const handle = await commands.run('sleep 300', { background: true });
    expect(await handle.kill()).toBe(true);
    expect(await rejection(handle.wait())).toMatchObject({ exitCode: -1, error: 'signal: killed' });
    expect(await commands.kill(handle.pid)).toBe(false);
  });

  test('is gone when the kill has been answered, every time', async () => {
    for (let round = 0; round < 20; round++) {
      const { pid } = await commands.run('sleep 300', { background: true });
      expect(await commands.kill(pid)).toBe(true);
      expect(await rejection(commands.run(`kill -0 ${pid}`))).toBeInstanceOf(CommandExitError);
      expect((await commands.list()).map((each) => each.pid)).not.toContain(pid);
    }
  });

  test('outlives its client, and another one connects', async () => {
    const first = await commands.run('read x; echo "got $x"', { background: true, stdin: true });
    await first.disconnect();
    const out = new Seen<string>();
    const second = await commands.connect(first.pid, { onStdout: out.add });
    expect(second.pid).toBe(first.pid);
    await second.sendStdin('it\n');
    expect(await second.wait()).toMatchObject({ exitCode: 0, stdout: 'got it\n' });
    expect(out.items.join('')).toBe('got it\n');
  });

  test('of another client is heard by both', async () => {
    const first = await commands.run('read x; seq 1000', { background: true, stdin: true });
    const second = await commands.connect(first.pid);
    await first.sendStdin('\n');
    const [one, two] = await Promise.all([first.wait(), second.wait()]);
    expect(two.stdout).toBe(one.stdout);
    expect(one.stdout).toMatch(/^1\n(?:\d+\n)*1000\n$/);
  });

  test('many at a time', async () => {
    const runs = Array.from({ length: 20 }, (_, i) => commands.run(`echo ${i}`));
    const texts = (await Promise.all(runs)).map(({ stdout }) => stdout);
    expect(texts).toEqual(runs.map((_, i) => `${i}\n`));
  });
});

describe('errors', () => {
  test('of a missing directory', async () => {
    const error = await rejection(commands.run('true', { cwd: '/missing' }));
    expect(error).toBeInstanceOf(InvalidArgumentError);
    expect(String(error)).toContain("cwd '/missing' does not exist");
  });

  test('of an unknown process', async () => {
    expect(await commands.kill(4_000_000)).toBe(false);
    const calls = [commands.connect(4_000_000), commands.sendStdin(4_000_000, 'x')];
    for (const error of await rejections(calls)) {
      expect(error).toBeInstanceOf(NotFoundError);
      expect(String(error)).toContain('process with pid 4000000 not found');
    }
  });

  test('of an unknown user', async () => {
    const error = await rejection(commands.run('true', { user: 'nobody-here' }));
    expect(error).toBeInstanceOf(AuthenticationError);
    expect(String(error)).toContain("invalid username: 'nobody-here'");
  });

  test('of a client that gives up: the command goes on', async () => {
    const abort = new AbortController();
    const opts = { background: true, stdin: true, signal: abort.signal } as const;
    const handle = await commands.run('read x; exit 3', opts);
    abort.abort();
    await rejection(handle.wait());
    const again = await commands.connect(handle.pid);
    await again.sendStdin('\n');
    expect(await rejection(again.wait())).toMatchObject({ exitCode: 3 });
  });
});
