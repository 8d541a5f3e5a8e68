import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { envctl } from '../support/programs/envctl.ts';
import { API_KEY, startGateway, type TestGateway } from '../support/programs/gateway.ts';
import { envctlCommand } from '../support/programs/programs.ts';
import { init } from '../support/programs/sandbox.ts';

let daemon: TestDaemon;
let gateway: TestGateway;
let bin: string;
beforeAll(async () => {
  [daemon, gateway] = await Promise.all([startDaemon(), startGateway()]);
  await init(daemon, { accessToken: 'secret', defaultUser: 'root' });
  await gateway.register('box-of-roses', daemon.port, { envdAccessToken: 'secret', timeout: 3600 });
  await envctl(daemon.url, ['run', '-d', '--tag', 'tagged', 'sleep', '1000'], {
    env: { ENVCTL_TOKEN: 'secret' },
  });
  mkdirSync(join(daemon.scratch, 'roses and thorns'));
  writeFileSync(join(daemon.scratch, 'rose.txt'), '');
});
afterAll(async () => {
  for (const each of [gateway, daemon]) await each?.[Symbol.asyncDispose]();
});

/** The network of a loaded machine may need longer than a shell waits, so an answer is asked for until it is not empty. */
async function completed(kind: string, word: string, line: readonly string[] = []): Promise<string[]> {
  let lines: string[] = [];
  await expect
    .poll(async () => {
      const env = { ENVCTL_TOKEN: 'secret' };
      const { stdout } = await envctl(daemon.url, ['complete', kind, word, '--', 'envctl', ...line], {
        env,
      });
      lines = stdout.trim().split('\n');
      return stdout;
    })
    .not.toBe('');
  return lines;
}

describe('the daemon is asked for', () => {
  test('paths, with and without a colon', async () => {
    const at = daemon.scratch;
    expect(await completed('path', `:${at}/ro`)).toEqual([`:${at}/rose.txt`, `:${at}/roses and thorns/`]);
    expect(await completed('path', `${at}/rose.`)).toEqual([`${at}/rose.txt`]);
  });

  test('pids and tags', async () => {
    expect(await completed('process', 'tag')).toEqual(['tagged']);
    expect(await completed('process', '')).toHaveLength(2);
  });

  test('the sandboxes of the gateway that the line names', async () => {
    const line = ['run', '--gateway', gateway.url, `--api-key=${API_KEY}`, '--sandbox'];
    expect(await completed('sandbox', 'box', line)).toEqual(['box-of-roses']);
    const inIt = [...line, 'box-of-roses', '--token', 'secret'];
    expect(await completed('process', 'tag', inIt)).toEqual(['tagged']);
  });

  test('signals', async () => {
    expect(await completed('signal', 'TE')).toEqual(['TERM']);
  });
});

test('what fails, and a daemon that does not answer, are silent', async () => {
  const silent = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => silent.once('listening', resolve));
  const { port } = silent.address() as { port: number };
  for (const url of ['http://127.0.0.1:1', `http://127.0.0.1:${port}`, 'nonsense://x', daemon.url])
    expect(await envctl(url, ['complete', 'process', ''])).toMatchObject({ code: 0, stdout: '', stderr: '' });
  silent.close();
});

test('bash completes what is behind a colon', async () => {
  bin = scratch();
  const [node, program] = envctlCommand();
  writeFileSync(join(bin, 'envctl'), `#!/bin/sh\nexec '${node}' '${program}' "$@"\n`);
  chmodSync(join(bin, 'envctl'), 0o755);
  const { stdout } = await envctl('', ['completion', 'bash']);
  const complete = (line: string, words: readonly string[]) => {
    const script = `${stdout}\nCOMP_LINE=$1; COMP_POINT=\${#1}; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _envctl; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const env = {
      PATH: `${bin}:${process.env.PATH}`,
      ENVCTL_URL: daemon.url,
      ENVCTL_TOKEN: 'secret',
      HOME: bin,
    };
    return execFileSync('bash', ['-c', script, 'bash', line, ...words], { env, encoding: 'utf8' }).trim();
  };
  const path = `${daemon.scratch}/roses`;
  await expect
    .poll(() => complete(`envctl cat :${path}`, ['envctl', 'cat', ':', path]))
    .toBe(`${path}\\ and\\ thorns/`);
  await expect.poll(() => complete('envctl kill tag', ['envctl', 'kill', 'tag'])).toBe('tagged');
  expect(complete('envctl kill -s TE', ['envctl', 'kill', '-s', 'TE'])).toBe('TERM');
});
