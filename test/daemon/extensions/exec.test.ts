import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { needs } from '../../support/machine/needs.ts';
import { runs } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/* POST /exec: one command, one answer in JSON. */

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon[Symbol.asyncDispose]());

interface Answer {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly stdoutBytes: number;
  readonly usage: { readonly peakMemoryBytes: number | null };
  readonly code: number;
  readonly message: string;
}

async function exec(request: unknown, headers: Record<string, string> = {}) {
  const body = typeof request === 'string' ? request : JSON.stringify(request);
  const response = await fetch(`${daemon.url}/exec`, { method: 'POST', body, headers });
  return { status: response.status, body: (await response.json()) as Answer };
}
const sh = (script: string, others = {}) => exec({ cmd: 'sh', args: ['-c', script], ...others });

test('the answer has how the command ended, what it wrote, and what it used', async () => {
  const { status, body } = await sh('echo out; echo err >&2; exit 3');
  expect(status).toBe(200);
  expect(body).toEqual({
    ...{ exitCode: 3, signal: null, reason: 'exited', truncated: false },
    durationMs: expect.any(Number),
    usage: {
      userMicros: expect.any(Number),
      systemMicros: expect.any(Number),
      peakMemoryBytes: body.usage.peakMemoryBytes,
    },
    ...{ stdout: 'out\n', stdoutEncoding: 'utf-8', stdoutBytes: 4 },
    ...{ stderr: 'err\n', stderrEncoding: 'utf-8', stderrBytes: 4 },
  });
});

test('a command that a signal ends has no exit code', async () => {
  expect((await sh('kill -USR1 $$')).body).toMatchObject({
    exitCode: -1,
    signal: 'SIGUSR1',
    reason: 'signaled',
  });
});

test('variables, directory, and user are those of the request', async () => {
  const { body } = await sh('echo "$A $PWD"', { envs: { A: 'b' }, cwd: daemon.scratch });
  expect(body.stdout).toBe(`b ${daemon.scratch}\n`);
});

test('the user is named in the body, or as by RPCs', async () => {
  needs('root');
  const as = { authorization: `Basic ${btoa('1234:')}` };
  expect((await exec({ cmd: 'id', args: ['-u'], cwd: '/', user: '4321' }, as)).body.stdout).toBe('4321\n');
  expect((await exec({ cmd: 'id', args: ['-u'], cwd: '/' }, as)).body.stdout).toBe('1234\n');
  expect((await exec({ cmd: 'id', user: 'nobody-here' })).status).toBe(401);
});

test('the command runs in a cgroup of its own, as one of Start does', async () => {
  needs('cgroup v2');
  const { body } = await exec({ cmd: 'cat', args: ['/proc/self/cgroup'] });
  const root = daemon.cgroupRoot?.split('/').at(-1);
  expect(body.stdout).toMatch(new RegExp(`/${root}/user/${daemon.pid}-\\d+\\n`));
});

describe('standard input', () => {
  test('is text, or base64', async () => {
    expect((await exec({ cmd: 'cat', stdin: 'größe\0' })).body.stdout).toBe('größe\0');
    const bytes = { stdin: '//79', stdinEncoding: 'base64' };
    expect((await exec({ cmd: 'cat', ...bytes })).body).toMatchObject({
      stdout: '//79',
      stdoutEncoding: 'base64',
    });
    expect((await exec({ cmd: 'cat', stdin: 'x', stdinEncoding: 'base64' })).status).toBe(400);
  });

  test('is at its end where there is none', async () => {
    expect((await exec({ cmd: 'cat' })).body).toMatchObject({ exitCode: 0, stdout: '' });
    expect((await exec({ cmd: 'cat', stdin: '' })).body).toMatchObject({ exitCode: 0, stdout: '' });
  });

  test('may have megabytes, and need not be read', async () => {
    const stdin = 'a'.repeat(3 * 1024 * 1024);
    expect((await exec({ cmd: 'wc', args: ['-c'], stdin })).body.stdout.trim()).toBe(String(stdin.length));
    expect((await exec({ cmd: 'true', stdin })).body.exitCode).toBe(0);
  });
});

describe('output beyond the limit', () => {
  test('is left out in the middle, between characters', async () => {
    const { body } = await sh('i=0; while [ $i -lt 100 ]; do printf ä; i=$((i+1)); done', {
      maxOutputBytes: 10,
    });
    expect(body).toMatchObject({ truncated: true, stdoutBytes: 200, stdoutEncoding: 'utf-8' });
    expect(body.stdout).toBe('ää\n[192 bytes left out]\nää');
  });

  test.each([1, 2, 3, 7, 4096, 100_000])(
    'of %i bytes keeps its begin and its end',
    async (maxOutputBytes) => {
      const { body } = await exec({ cmd: 'seq', args: ['100000'], maxOutputBytes });
      const whole = `${Array.from({ length: 100_000 }, (_, index) => index + 1).join('\n')}\n`;
      const head = whole.slice(0, Math.floor(maxOutputBytes / 2));
      const tail = whole.slice(-Math.ceil(maxOutputBytes / 2));
      const omitted = whole.length - maxOutputBytes;
      expect(body.stdout).toBe(`${head}\n[${omitted} bytes left out]\n${tail}`);
      expect(body.stdoutBytes).toBe(whole.length);
    },
  );

  test('just at the limit is whole', async () => {
    const { body } = await sh('printf 123456', { maxOutputBytes: 6 });
    expect(body).toMatchObject({ stdout: '123456', truncated: false });
  });

  test('is told of each stream: bytes that are no UTF-8 are base64', async () => {
    const { body } = await sh('head -c 100 /dev/zero | tr "\\0" "\\377" >&2; echo a', { maxOutputBytes: 4 });
    expect(body).toMatchObject({
      stdout: 'a\n',
      truncated: true,
      stderrEncoding: 'base64',
      stderrBytes: 100,
    });
    expect(Buffer.from(body.stderr, 'base64').toString('latin1')).toBe('ÿÿ\n[96 bytes left out]\nÿÿ');
  });
});

test('a large answer is whole, whatever has to be escaped in it', async () => {
  const script = 'for n in 1 2 3 4 5 6 7 8; do head -c 1000000 /dev/zero; seq 10000; printf "ä\\"\\\\"; done';
  const { body } = await sh(script, { maxOutputBytes: 16 * 1024 * 1024 });
  const numbers = `${Array.from({ length: 10_000 }, (_, index) => index + 1).join('\n')}\n`;
  expect(body.stdout === `${'\0'.repeat(1_000_000)}${numbers}ä"\\`.repeat(8)).toBe(true);
});

test('at its time limit it is killed with everything below it, and what it wrote is told', async () => {
  const { body } = await sh('sleep 1000 & echo $!; sleep 1000', { timeoutMs: 300 });
  expect(body).toMatchObject({ exitCode: -1, signal: 'SIGKILL', reason: 'deadline' });
  if (daemon.cgroupRoot) await until('its child is gone', () => !runs(Number(body.stdout)));
});

test.each([
  [400, '{', 'request body is not valid JSON'],
  [400, '', 'request body must be an object'],
  [400, [], 'request body must be an object'],
  [400, {}, 'cmd must be a string that is not empty'],
  [400, { cmd: 'a', args: 'b' }, 'args must be an array'],
  [400, { cmd: 'a', timeout: 5 }, "unknown member 'timeout': use cmd, args, envs, cwd, user, stdin"],
  [400, { cmd: 'a', timeoutMs: 0 }, 'timeoutMs must be a whole number from 1 to'],
  [400, { cmd: 'a', maxOutputBytes: 1e9 }, 'maxOutputBytes must be a whole number from 1 to 16777216'],
  [400, { cmd: 'a', envs: { 'b=c': '' } }, 'invalid name of an environment variable'],
  [400, { cmd: 'true', cwd: '/none' }, "cwd '/none' does not exist"],
  [404, { cmd: 'no-such-program' }, "cannot start 'no-such-program'"],
])('%i for %j', async (status, request, message) => {
  const answer = await exec(request);
  expect([answer.status, answer.body.code]).toEqual([status, status]);
  expect(answer.body.message).toContain(message);
});
