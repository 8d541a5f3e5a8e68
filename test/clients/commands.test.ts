import {
  AuthenticationError,
  CommandExitError,
  InvalidArgumentError,
  NotFoundError,
  TimeoutError,
} from 'e2b';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Guest, rejection, rejections, Seen, startGuest } from '../support/programs/sandbox.ts';

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
  test('returns stdout, stderr and the exit code', async () => {
    const result = await commands.run('echo out; echo err >&2');
    expect(result).toEqual({ exitCode: 0, stdout: 'out\n', stderr: 'err\n', error: undefined });
  });

  test('with a non-zero exit code throws its result', async () => {
    const error = await rejection(commands.run('echo half; exit 7'));
    expect(error).toBeInstanceOf(CommandExitError);
    expect(error).toMatchObject({ exitCode: 7, stdout: 'half\n', error: 'exit status 7' });
  });

  test('that a signal ends throws the name of the signal', async () => {
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

  test('decodes UTF-8 characters that are split between messages', async () => {
    // The pause makes two messages of the halves; the client emits no event for half a character.
    const { stdout } = await commands.run(
      "printf '\\xc3'; sleep 0.05; printf '\\xbc\\n'; seq -f 'ü%g' 20000",
    );
    expect(stdout).toBe(`ü\n${Array.from({ length: 20000 }, (_, i) => `ü${i + 1}\n`).join('')}`);
  });

  test('has the requested environment and directory', async () => {
    const envs = { GREETING: 'hello world' };
    const { stdout } = await commands.run('echo "$GREETING"; pwd; id -un', { envs, cwd: guest.directory });
    expect(stdout).toBe(`hello world\n${guest.directory}\nroot\n`);
  });

  test('runs as the requested user', async () => {
    const { stdout } = await commands.run('id -un; echo $LOGNAME', { user: 'daemon' });
    expect(stdout).toBe('daemon\ndaemon\n');
  });

  test('without stdin reads the end of file at once', async () => {
    expect((await commands.run('cat; echo end')).stdout).toBe('end\n');
  });

  test('is killed after its time limit', async () => {
    const opts = { background: true, timeoutMs: 300 } as const;
    const handle = await commands.run('sleep 300', opts).catch((error: Error) => error);
    // The limit is of the start, too, which takes longer on a machine that has no time.
    if (handle instanceof Error) return expect(handle).toBeInstanceOf(TimeoutError);
    expect(await rejection(handle.wait())).toBeInstanceOf(TimeoutError);
    const end = await rejection(commands.connect(handle.pid).then((again) => again.wait()));
    expect(end).toMatchObject({ exitCode: -1, error: 'signal: killed' });
  });

  test('with a time limit of 0 is not limited', async () => {
    // Longer than a limit of 0 ms, if it were taken literally.
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

  test('is listed with its parameters while it runs', async () => {
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

  test('is killed; a second kill returns false', async () => {
    const handle = await commands.run('sleep 300', { background: true });
    expect(await handle.kill()).toBe(true);
    expect(await rejection(handle.wait())).toMatchObject({ exitCode: -1, error: 'signal: killed' });
    expect(await commands.kill(handle.pid)).toBe(false);
  });

  test('has ended when the kill is answered', async () => {
    for (let round = 0; round < 20; round++) {
      const { pid } = await commands.run('sleep 300', { background: true });
      expect(await commands.kill(pid)).toBe(true);
      expect(await rejection(commands.run(`kill -0 ${pid}`))).toBeInstanceOf(CommandExitError);
      expect((await commands.list()).map((each) => each.pid)).not.toContain(pid);
    }
  });

  test('continues when its client disconnects, and another client can connect', async () => {
    const first = await commands.run('read x; echo "got $x"', { background: true, stdin: true });
    await first.disconnect();
    const out = new Seen<string>();
    const second = await commands.connect(first.pid, { onStdout: out.add });
    expect(second.pid).toBe(first.pid);
    await second.sendStdin('it\n');
    expect(await second.wait()).toMatchObject({ exitCode: 0, stdout: 'got it\n' });
    expect(out.items.join('')).toBe('got it\n');
  });

  test('sends its output to two clients', async () => {
    const first = await commands.run('read x; seq 1000', { background: true, stdin: true });
    const second = await commands.connect(first.pid);
    await first.sendStdin('\n');
    const [one, two] = await Promise.all([first.wait(), second.wait()]);
    expect(two.stdout).toBe(one.stdout);
    expect(one.stdout).toMatch(/^1\n(?:\d+\n)*1000\n$/);
  });

  test('runs beside 19 others', async () => {
    const runs = Array.from({ length: 20 }, (_, i) => commands.run(`echo ${i}`));
    const texts = (await Promise.all(runs)).map(({ stdout }) => stdout);
    expect(texts).toEqual(runs.map((_, i) => `${i}\n`));
  });
});

describe('errors', () => {
  test('a missing directory is an InvalidArgumentError', async () => {
    const error = await rejection(commands.run('true', { cwd: '/missing' }));
    expect(error).toBeInstanceOf(InvalidArgumentError);
    expect(String(error)).toContain("cwd '/missing' does not exist");
  });

  test('an unknown process is a NotFoundError', async () => {
    expect(await commands.kill(4_000_000)).toBe(false);
    const calls = [commands.connect(4_000_000), commands.sendStdin(4_000_000, 'x')];
    for (const error of await rejections(calls)) {
      expect(error).toBeInstanceOf(NotFoundError);
      expect(String(error)).toContain('process with pid 4000000 not found');
    }
  });

  test('an unknown user is an AuthenticationError', async () => {
    const error = await rejection(commands.run('true', { user: 'nobody-here' }));
    expect(error).toBeInstanceOf(AuthenticationError);
    expect(String(error)).toContain("invalid username: 'nobody-here'");
  });

  test('an aborted client leaves the command running', async () => {
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
