import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { describe, expect, onTestFinished, test } from 'vitest';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon } from '../../support/programs/daemon.ts';
import { daemonCommand } from '../../support/programs/programs.ts';

test('tokens appear in no response and in no log line', async () => {
  await using daemon = await startDaemon({ args: ['--log-level=trace'] });
  const answers: string[] = [];
  const call = async (path: string, init: RequestInit = {}) => {
    const response = await fetch(daemon.url + path, { method: 'POST', ...init });
    answers.push(`${response.status} ${JSON.stringify([...response.headers])} ${await response.text()}`);
  };
  const json = (body: unknown) => (typeof body === 'string' ? body : JSON.stringify(body));
  const init = (body: unknown) => call('/init', { body: json(body) });
  const withToken = (token: string) => ({ 'x-access-token': token });

  await init('{"accessToken": "s3cret-a');
  await init({ accessToken: ['s3cret-a'] });
  await init({ accessToken: 's3cret-a\0' });
  await init({ accessToken: 's3cret-a', timestamp: 'never' });
  await init({ accessToken: 's3cret-a', caBundle: 'no certificate', defaultUser: 'root' });
  await init({ accessToken: 's3cret-a' });
  await init({ accessToken: 's3cret-b' });
  await init({});
  for (const token of ['s3cret-a', 's3cret-b']) {
    const headers = withToken(token);
    await call('/envs', { method: 'GET', headers });
    await call('/nope?token=s3cret-q', { headers });
    await call('/freeze?mode=s3cret-q', { headers: withToken('s3cret-b') });
    await call('/files?path=/nope', { method: 'GET', headers });
    await call('/files?path=/nope&signature=s3cret-sig', { method: 'GET' });
    await call('/files/compose', { headers: { ...headers, 'content-type': 'application/json' }, body: '{' });
    for (const type of ['application/json', 'application/proto', 'text/plain']) {
      await call('/process.Process/List', { headers: { ...headers, 'content-type': type }, body: '{"x":' });
      await call('/filesystem.Filesystem/Stat', {
        headers: { ...headers, 'content-type': type },
        body: '{"path": 7}',
      });
    }
    await call('/process.Process/Start', {
      headers: { ...headers, 'content-type': 'application/connect+json' },
      body: 'x',
    });
  }
  expect(answers.some((answer) => answer.startsWith('401'))).toBe(true);
  expect(answers.some((answer) => answer.startsWith('400'))).toBe(true);
  expect(answers.filter((answer) => answer.includes('s3cret'))).toEqual([]);
  await daemon.stop();
  expect(daemon.log.length).toBeGreaterThan(answers.length);
  expect(JSON.stringify(daemon.log)).not.toContain('s3cret');
});

describe('core dumps', () => {
  /** A daemon with an unlimited core size, which dumps into its working directory. */
  async function startDumping(directory: string): Promise<{ url: string; child: ChildProcess }> {
    const script = 'ulimit -c unlimited && cd "$1" && shift && exec "$@"';
    const args = ['--host=127.0.0.1', '--port=0', '--no-cgroups', `--runtime-directory=${scratch()}`];
    const child = spawn('bash', ['-c', script, 'bash', directory, ...daemonCommand(), ...args], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    onTestFinished(() => void child.kill('SIGKILL'));
    for await (const line of createInterface({ input: child.stdout })) {
      const { msg, port } = JSON.parse(line) as { msg: string; port: number };
      if (msg === 'ready') return { url: `http://127.0.0.1:${port}`, child };
    }
    throw new Error('the daemon did not start');
  }

  const limits = (pid: number | undefined) =>
    /^Max core file size +(\S+) +(\S+)/m.exec(readFileSync(`/proc/${pid}/limits`, 'utf8'))?.slice(1);

  test.each(['SIGABRT', 'SIGSEGV'] as const)('the daemon writes none on %s', async (signal) => {
    const directory = scratch();
    const { child } = await startDumping(directory);
    // 1 rather than 0: the only limit that is also obeyed when core_pattern is a pipe.
    expect(limits(child.pid)).toEqual(['1', 'unlimited']);
    child.kill(signal);
    expect(await once(child, 'exit')).toEqual([null, signal]);
    expect(readdirSync(directory)).toEqual([]);
  });

  test('processes have the core limit that the daemon was started with', async () => {
    const { url, child } = await startDumping(scratch());
    const directory = scratch();
    const message = JSON.stringify({
      process: { cmd: 'bash', args: ['-c', 'ulimit -c; kill -ABRT $$'], cwd: directory },
    });
    const head = Buffer.alloc(5);
    head.writeUInt32BE(message.length, 1);
    const response = await fetch(`${url}/process.Process/Start`, {
      method: 'POST',
      headers: { 'content-type': 'application/connect+json' },
      body: Buffer.concat([head, Buffer.from(message)]),
    });
    const text = await response.text();
    expect(text).toContain(Buffer.from('unlimited\n').toString('base64'));
    expect(text).toContain('signal: aborted');
    const pattern = readFileSync('/proc/sys/kernel/core_pattern', 'utf8').trim();
    if (/^[^|/]/.test(pattern)) expect(readdirSync(directory).length).toBe(1);
    child.kill();
    expect(await once(child, 'exit')).toEqual([0, null]);
  });
});
