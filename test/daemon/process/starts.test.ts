import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { Code, ConnectError } from '@connectrpc/connect';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { byPid, type Clients, connectTo, transcribe } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

/* What a start does where a guest is not as expected: without a home, an interpreter, or names for its users. */

let daemon: TestDaemon;
let process: Clients['process'];
let dir: string;
beforeAll(async () => {
  daemon = await startDaemon();
  process = connectTo(daemon.url).process;
  dir = `${daemon.scratch}/files`;
  mkdirSync(dir);
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

type StartInit = Parameters<Clients['process']['start']>[0];

const sh = (script: string) => ({ cmd: '/bin/sh', args: ['-c', script] });
const as = (user: string) => ({ authorization: `Basic ${Buffer.from(`${user}:`).toString('base64')}` });
const run = (request: StartInit, user = 'root') => transcribe(process.start(request, { headers: as(user) }));

async function failure(request: StartInit, user = 'root') {
  const error = await run(request, user).then(
    () => Promise.reject(new Error('the start did not fail')),
    (reason: unknown) => ConnectError.from(reason),
  );
  return { code: error.code, message: error.rawMessage };
}

describe('a user without a home', () => {
  const users = readFileSync('/etc/passwd', 'utf8').matchAll(/^([^:]+):(?:[^:]*:){4}(\/[^:]+):/gm);
  const [, nobody = '', home = ''] = [...users].find(([, , place = '']) => !existsSync(place)) ?? [];

  test.each([{}, { pty: {} }])('is started in / when no directory is asked for: %j', async (how) => {
    needs('root');
    const { stdout, pty } = await run({ process: sh('pwd; echo $PWD $HOME'), ...how }, nobody);
    expect(String(stdout) + String(pty).replaceAll('\r', '')).toBe(`/\n/ ${home}\n`);
  });

  test('is told so when it asks for a directory there', async () => {
    needs('root');
    for (const cwd of [home, '~', 'below'])
      expect(await failure({ process: { ...sh('pwd'), cwd } }, nobody)).toEqual({
        code: Code.InvalidArgument,
        message: `cwd '${cwd === 'below' ? `${home}/below` : home}' does not exist`,
      });
  });
});

describe('a file whose interpreter is missing', () => {
  const executable = (name: string, content: string | Buffer) => {
    const path = `${dir}/${name}`;
    writeFileSync(path, content, { mode: 0o755 });
    return path;
  };
  const MISSING = 'ENOENT: no such file or directory';

  test('is a script: its first line is named', async () => {
    const cmd = executable('script', '#!/none/python3 -u\nprint()\n');
    expect(await failure({ process: { cmd } })).toEqual({
      code: Code.NotFound,
      message: `cannot start '${cmd}': ${MISSING}: it begins with '#!/none/python3 -u'`,
    });
  });

  test('is a script with the line ends of Windows: they are seen', async () => {
    const cmd = executable('windows', '#!/bin/sh\r\necho\r\n');
    const hint = 'a line of Windows: end it without \\r';
    expect((await failure({ process: { cmd } })).message).toBe(
      `cannot start '${cmd}': ${MISSING}: it begins with '#!/bin/sh\\r', ${hint}`,
    );
  });

  test('is a script whose interpreter is not executable', async () => {
    const cmd = executable('denied', '#!/etc/passwd\n');
    expect(await failure({ process: { cmd } })).toEqual({
      code: Code.InvalidArgument,
      message: `cannot start '${cmd}': EACCES: permission denied: it begins with '#!/etc/passwd'`,
    });
  });

  test('is a program: its loader is named', async () => {
    const program = readFileSync('/bin/sleep').toString('latin1');
    const cmd = executable('program', Buffer.from(program.replace('/lib', '/bil'), 'latin1'));
    expect((await failure({ process: { cmd } })).message).toMatch(
      /: its loader is '\/bil[\w/.-]+\.so[\w.]*'$/,
    );
  });

  test('and one that is missing itself, or a directory, is reported as before', async () => {
    expect((await failure({ process: { cmd: '/none/x' } })).message).toBe(
      `cannot start '/none/x': ${MISSING}`,
    );
    expect((await failure({ process: { cmd: dir } })).message).toBe(
      `cannot start '${dir}': EACCES: permission denied`,
    );
  });
});

describe('a user by number', () => {
  const ids = async (user: string) =>
    String(
      (await run({ process: { ...sh('echo $(id -u) $(id -g) $(id -G) $HOME $USER'), cwd: '/' } }, user))
        .stdout,
    );

  test.each([
    ['0', '0 0 0 /root root\n'],
    ['0:0', '0 0 0 /root root\n'],
    ['0:54321', '0 54321 54321 /root root\n'],
    ['54321', '54321 54321 54321 / 54321\n'],
    ['54321:5', '54321 5 5 / 54321\n'],
  ])('%s', async (user, line) => {
    needs('root');
    expect(await ids(user)).toBe(line);
  });

  test.each(['4294967295', '0:4294967295', '99999999999', '-1', '0x0'])(
    'that is none is refused: %s',
    async (user) => {
      expect(await failure({ process: { cmd: 'id' } }, user)).toEqual({
        code: Code.Unauthenticated,
        message: `invalid username: '${user}'`,
      });
    },
  );

  test('transfers files, too', async () => {
    needs('root');
    const query = new URLSearchParams({ path: `${dir}/owned`, username: '54321:54322' });
    const headers = { 'content-type': 'application/octet-stream' };
    const sent = await fetch(`${daemon.url}/files?${query}`, { method: 'POST', headers, body: 'x' });
    expect(sent.status).toBe(200);
    const { stdout } = await run({ process: sh(`stat -c '%u %g' ${dir}/owned`) });
    expect(String(stdout)).toBe('54321 54322\n');
  });
});

describe('a terminal', () => {
  const variables = async (envs: Record<string, string>) =>
    String((await run({ process: { ...sh('echo $TERM $LANG'), envs }, pty: {} })).pty).trim();

  test('has TERM and LANG, unless the client sets them', async () => {
    expect(await variables({})).toBe('xterm-256color C.UTF-8');
    expect(await variables({ TERM: 'dumb', LANG: 'C' })).toBe('dumb C');
  });

  test('and nothing else has', async () => {
    const { stdout } = await run({ process: sh('echo "$TERM,$LANG"') });
    expect(String(stdout)).toBe(',\n');
  });

  test('erases characters and not bytes', async () => {
    const events = process.start({ process: { cmd: 'cat' }, pty: {} });
    const { pty } = await transcribe(events, async (event, { pid }) => {
      if (event.case !== 'start') return;
      // é, the erase character, ab, the end of the line, the end of the input.
      const value = Buffer.from('é\x7fab\n\x04');
      await process.sendInput({
        process: byPid(pid || event.value.pid),
        input: { input: { case: 'pty', value } },
      });
    });
    expect(String(pty).split('\r\n').at(-2)).toBe('ab');
  });
});
