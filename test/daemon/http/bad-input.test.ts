import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { signFile } from '../../../src/conformance/suite/sign-file.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

const TOKEN = 'bad-input-token';
const UNAUTHORIZED =
  'unauthorized access, please provide a valid access token or method signing if supported';

let daemon: TestDaemon;
let dir: string;
beforeAll(async () => {
  daemon = await startDaemon();
  dir = `${daemon.scratch}/files`;
  mkdirSync(dir);
  writeFileSync(`${dir}/file`, 'content');
  symlinkSync('loop', `${dir}/loop`);
  await post('/init', { accessToken: TOKEN });
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

const withToken = { 'x-access-token': TOKEN };
const raw = { 'content-type': 'application/octet-stream' };

function post(path: string, body: unknown, headers: Record<string, string> = {}): Promise<Response> {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return fetch(`${daemon.url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: text,
  });
}

function query(parameters: Record<string, string>): string {
  return `/files?${new URLSearchParams(parameters)}`;
}

const sign = (path: string, operation: 'read' | 'write', username: string, expiration?: string) =>
  signFile({ path, operation, username, token: TOKEN, expiration });

interface Case {
  readonly call: () => Promise<Response>;
  readonly status: number;
  readonly message: string | (() => string);
}

const get = (parameters: Record<string, string>, headers: Record<string, string> = withToken) =>
  fetch(daemon.url + query(parameters), { headers });
const upload = (parameters: Record<string, string>, headers: Record<string, string> = raw, body = 'x') =>
  post(query(parameters), body, { ...withToken, ...headers });

const asItIs = (parameters: string) => () =>
  fetch(`${daemon.url}/files?${parameters}`, { headers: withToken });

const rest: Record<string, Case> = {
  'a path that is no UTF-8': {
    ...{ call: asItIs('path=/%ff'), status: 400 },
    message: 'the query must be UTF-8, with % encoded as %25',
  },
  'an upload to a path that is no UTF-8': {
    ...{ call: () => post('/files?path=/tmp/caf%E9.txt', 'x', { ...withToken, ...raw }), status: 400 },
    message: 'the query must be UTF-8, with % encoded as %25',
  },
  'a path with a lone %': {
    ...{ call: asItIs('path=/100%'), status: 400 },
    message: 'the query must be UTF-8, with % encoded as %25',
  },
  'unknown path': {
    call: () => get({ path: `${dir}/nope` }),
    status: 404,
    message: () => `path '${dir}/nope' does not exist`,
  },
  'directory where a file is meant, down': {
    call: () => get({ path: dir }),
    status: 400,
    message: () => `path '${dir}' is a directory`,
  },
  'directory where a file is meant, up': {
    call: () => upload({ path: dir }),
    status: 400,
    message: () => `path is a directory: ${dir}`,
  },
  'unknown user': {
    call: () => get({ path: 'x', username: 'nobody-here' }),
    status: 401,
    message: "error looking up user 'nobody-here': invalid username: 'nobody-here'",
  },
  'another home': {
    call: () => get({ path: '~other/x' }),
    status: 400,
    message: "cannot expand home of another user in path: '~other/x'",
  },
  'wrong token': {
    call: () => get({ path: `${dir}/file` }, { 'x-access-token': 'wrong' }),
    status: 401,
    message: 'access token present in header but does not match',
  },
  'no token where one is needed': {
    call: () => fetch(`${daemon.url}/envs`),
    status: 401,
    message: UNAUTHORIZED,
  },
  'no signature': {
    call: () => get({ path: `${dir}/file` }, {}),
    status: 401,
    message: 'missing signature query parameter',
  },
  'wrong signature': {
    call: () => get({ path: `${dir}/file`, signature: sign(`${dir}/file`, 'write', '') }, {}),
    status: 401,
    message: 'invalid signature',
  },
  'expired signature': {
    call: () =>
      get(
        {
          path: `${dir}/file`,
          username: 'root',
          signature: sign(`${dir}/file`, 'read', 'root', '1000'),
          signature_expiration: '1000',
        },
        {},
      ),
    status: 401,
    message: 'signature is already expired',
  },
  'wrong content type': {
    call: () => upload({ path: `${dir}/new` }, { 'content-type': 'text/plain' }),
    status: 400,
    message: expect.stringContaining("'text/plain'"),
  },
  'unknown content coding': {
    call: () => upload({ path: `${dir}/new` }, { ...raw, 'content-encoding': 'br' }),
    status: 400,
    message: expect.stringContaining("'br'"),
  },
  'raw upload without a path': {
    call: () => upload({}),
    status: 400,
    message: expect.stringContaining('path'),
  },
  'oversized metadata': {
    call: () => upload({ path: `${dir}/new` }, { ...raw, 'x-metadata-a': 'v'.repeat(4096) }),
    status: 400,
    message: expect.stringMatching(/metadata.*4096/),
  },
  'bad JSON': {
    call: () => post('/files/compose', '{', withToken),
    status: 400,
    message: expect.stringMatching(/JSON/),
  },
  'compose of nothing': {
    call: () => post('/files/compose', { source_paths: [], destination: 'x' }, withToken),
    status: 400,
    message: expect.stringContaining('source_paths'),
  },
  'an unknown freeze mode': {
    call: () => post('/freeze?mode=deep', '', withToken),
    status: 400,
    message: "mode must be one of legacy, hierarchy, not 'deep'",
  },
};

describe('REST', () => {
  test.each(Object.entries(rest))('%s', async (_name, { call, status, message }) => {
    const response = await call();
    expect(response.status).toBe(status);
    expect(response.headers.get('content-type')).toBe('application/json; charset=utf-8');
    expect(response.headers.get('x-content-type-options')).toBe('nosniff');
    const wanted = typeof message === 'function' ? message() : message;
    expect(await response.json()).toEqual({ code: status, message: wanted });
  });

  test('a valid signature opens a file, for its own operation only', async () => {
    const path = `${dir}/file`;
    const response = await get({ path, signature: sign(path, 'read', '') }, {});
    expect(await response.text()).toBe('content');
  });

  test('refused requests leave no files', () => {
    expect(readdirSync(dir).sort()).toEqual(['file', 'loop']);
  });
});

const rpc: [string, string, object, string, string | (() => string)][] = [
  ['Stat of an unknown path', 'Stat', { path: 'nope' }, 'not_found', expect.stringContaining("'/root/nope'")],
  ['Stat of nothing', 'Stat', { path: 'a\0b' }, 'invalid_argument', 'path contains a NUL byte'],
  [
    'ListDir of a file',
    'ListDir',
    { path: '/etc/passwd' },
    'invalid_argument',
    expect.stringContaining("'/etc/passwd'"),
  ],
  [
    'ListDir of an unknown path',
    'ListDir',
    { path: '/nope' },
    'not_found',
    expect.stringContaining("'/nope'"),
  ],
  [
    'MakeDir of a directory',
    'MakeDir',
    { path: '/tmp' },
    'already_exists',
    expect.stringContaining("'/tmp'"),
  ],
  [
    'MakeDir of a file',
    'MakeDir',
    { path: '/etc/passwd' },
    'invalid_argument',
    expect.stringContaining("'/etc/passwd'"),
  ],
  [
    'Move of an unknown path',
    'Move',
    { source: '/nope', destination: '/tmp/x' },
    'not_found',
    expect.stringContaining("'/nope'"),
  ],
  [
    'an unknown polled watch',
    'GetWatcherEvents',
    { watcherId: 'x' },
    'not_found',
    expect.stringContaining("'x'"),
  ],
  ['no watch to remove', 'RemoveWatcher', { watcherId: 'x' }, 'not_found', expect.stringContaining("'x'")],
  [
    'a watch on a file',
    'CreateWatcher',
    { path: '/etc/passwd' },
    'invalid_argument',
    expect.stringContaining("'/etc/passwd'"),
  ],
  ['a watch on nothing', 'CreateWatcher', { path: '/nope' }, 'not_found', expect.stringContaining("'/nope'")],
];

describe('RPC', () => {
  test.each(rpc)('%s', async (_name, method, body, code, message) => {
    const response = await post(`/filesystem.Filesystem/${method}`, body, withToken);
    expect(await response.json()).toEqual({ code, message });
  });

  test('ListDir of a link cycle: failed_precondition', async () => {
    const response = await post('/filesystem.Filesystem/ListDir', { path: `${dir}/loop` }, withToken);
    expect(await response.json()).toMatchObject({ code: 'failed_precondition' });
  });

  test('an unknown user: unauthenticated', async () => {
    const authorization = `Basic ${Buffer.from('nobody-here:').toString('base64')}`;
    const response = await post(
      '/filesystem.Filesystem/Stat',
      { path: '/' },
      { ...withToken, authorization },
    );
    expect(response.status).toBe(401);
    expect(await response.json()).toEqual({
      code: 'unauthenticated',
      message: "invalid username: 'nobody-here'",
    });
  });

  test.each([
    ['tag', 'tag'],
    ['startId', 'start id'],
  ])('a %s of more than 4096 bytes', async (member, name) => {
    const start = (length: number) => {
      const message = Buffer.from(
        JSON.stringify({ process: { cmd: 'true' }, [member]: 'é'.repeat(length / 2) }),
      );
      const envelope = Buffer.alloc(5);
      envelope.writeUInt32BE(message.length, 1);
      const headers = { ...withToken, 'content-type': 'application/connect+json' };
      const body = Buffer.concat([envelope, message]);
      return fetch(`${daemon.url}/process.Process/Start`, { method: 'POST', headers, body });
    };
    expect(await (await start(4096)).text()).toContain('"status":"exit status 0"');
    const refused = `{"error":{"code":"invalid_argument","message":"${name} is longer than 4096 bytes: 4098"}}`;
    expect(await (await start(4098)).text()).toContain(refused);
  });

  test('an authorization scheme other than Basic: unauthenticated', async () => {
    const headers = { ...withToken, authorization: 'Bearer x' };
    const response = await post('/filesystem.Filesystem/Stat', { path: '/' }, headers);
    expect(await response.json()).toMatchObject({ code: 'unauthenticated' });
  });

  test.each(['Stat', 'WatchDir'])(
    'a message that is too large once decompressed is refused: %s',
    async (method) => {
      const bomb = gzipSync(`{"path":"${'x'.repeat(100 * 1024 * 1024)}"}`);
      const envelope = Buffer.from([1, 0, 0, 0, 0]);
      envelope.writeUInt32BE(bomb.length, 1);
      const stream = method === 'WatchDir';
      const response = await fetch(`${daemon.url}/filesystem.Filesystem/${method}`, {
        method: 'POST',
        headers: {
          ...withToken,
          'content-type': stream ? 'application/connect+json' : 'application/json',
          [stream ? 'connect-content-encoding' : 'content-encoding']: 'gzip',
        },
        body: stream ? Buffer.concat([envelope, bomb]) : bomb,
      });
      expect(await response.text()).toContain('"code":"resource_exhausted"');
    },
  );
});
