import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { needs } from '../../support/machine/needs.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

const JSON_TYPE = { 'content-type': 'application/json' };

function call(path: string, body: unknown, headers: Record<string, string> = {}): Promise<Response> {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return fetch(`${daemon.url}${path}`, { method: 'POST', headers: { ...JSON_TYPE, ...headers }, body: text });
}

/** A message in the envelope of Connect's streams. */
function enveloped(message: unknown): Buffer<ArrayBuffer> {
  const body = Buffer.from(JSON.stringify(message));
  const head = Buffer.alloc(5);
  head.writeUInt32BE(body.length, 1);
  return Buffer.concat([head, body]);
}

function stream(path: string, message: unknown, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(`${daemon.url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/connect+json', ...headers },
    body: enveloped(message),
  });
}

describe('REST', () => {
  test('/health is 204', async () => {
    const response = await fetch(`${daemon.url}/health`);
    expect(response.status).toBe(204);
    expect(response.headers.get('cache-control')).toBe('no-store');
  });

  test('an unknown operation is 404 and named', async () => {
    const response = await fetch(`${daemon.url}/nope?secret=1`);
    expect(response.status).toBe(404);
    expect(response.headers.get('content-type')).toBe('application/json; charset=utf-8');
    expect(response.headers.get('x-content-type-options')).toBe('nosniff');
    expect(await response.json()).toEqual({ code: 404, message: 'no such operation: GET /nope' });
  });

  test('CORS allows any origin and header, and exposes the headers of the protocols', async () => {
    const preflight = await fetch(`${daemon.url}/process.Process/List`, {
      method: 'OPTIONS',
      headers: {
        origin: 'https://example.com',
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'x-anything,connect-protocol-version',
      },
    });
    expect(preflight.status).toBe(204);
    expect(preflight.headers.get('access-control-allow-origin')).toBe('*');
    expect(preflight.headers.get('access-control-allow-methods')).toBe('GET, HEAD, POST, PUT, PATCH, DELETE');
    expect(preflight.headers.get('access-control-allow-headers')).toBe('x-anything,connect-protocol-version');
    expect(preflight.headers.get('access-control-max-age')).toBe('7200');
    for (const answer of [
      await call('/process.Process/List', {}, { origin: 'https://example.com' }),
      await stream('/process.Process/Connect', {}, { origin: 'https://example.com' }),
    ]) {
      expect(answer.headers.get('access-control-allow-origin')).toBe('*');
      expect(answer.headers.get('access-control-expose-headers')).toMatch(
        /Grpc-Status.*Location, Cache-Control/i,
      );
    }
  });

  test('invalid JSON for /init is 400', async () => {
    const response = await call('/init', '{"accessToken": "s3cret');
    expect(response.status).toBe(400);
    expect(await response.json()).toEqual({ code: 400, message: 'request body is not valid JSON' });
  });

  test('/metrics and /envs answer in JSON', async () => {
    const metrics = await (await fetch(`${daemon.url}/metrics`)).json();
    expect(Object.keys(metrics as object)).toEqual([
      'ts',
      'cpu_count',
      'cpu_used_pct',
      'mem_total',
      'mem_used',
      'mem_cache',
      'mem_total_mib',
      'mem_used_mib',
      'disk_used',
      'disk_total',
    ]);
    const init = await call('/init', { envVars: { A: '1' } });
    expect(init.status).toBe(204);
    expect(init.headers.get('x-envd-version')).toBe('0.6.13');
    expect(await (await fetch(`${daemon.url}/envs`)).json()).toEqual({ A: '1' });
  });
});

describe('Connect', () => {
  test('an unsupported protocol version is refused, in the format of each kind of call', async () => {
    const message = "unsupported Connect-Protocol-Version '2': use version 1";
    const unary = await call('/process.Process/List', {}, { 'connect-protocol-version': '2' });
    expect(unary.status).toBe(400);
    expect(await unary.json()).toEqual({ code: 'invalid_argument', message });
    const streaming = await stream('/process.Process/Start', {}, { 'connect-protocol-version': '2' });
    expect(streaming.status).toBe(200);
    const frame = Buffer.from(await streaming.arrayBuffer());
    expect(frame[0]).toBe(2);
    expect(JSON.parse(frame.subarray(5).toString())).toEqual({
      error: { code: 'invalid_argument', message },
    });
  });

  test('unknown JSON properties are refused by Filesystem and ignored by Process', async () => {
    const refused = await call('/filesystem.Filesystem/Stat', { path: '/', colour: 'red' });
    expect(refused.status).toBe(400);
    expect(await refused.json()).toMatchObject({
      code: 'invalid_argument',
      message: expect.stringContaining('"colour"'),
    });
    const watch = await stream('/filesystem.Filesystem/WatchDir', { path: '/', colour: 'red' });
    expect(await watch.text()).toMatch(/invalid_argument.*colour/);
    expect((await call('/process.Process/List', { colour: 'red' })).status).toBe(200);
    const start = await stream('/process.Process/Start', { process: { cmd: 'true' }, colour: 'red' });
    expect(await start.text()).toContain('exit status 0');
  });

  test('malformed messages are refused', async () => {
    expect((await call('/process.Process/List', '{')).status).toBe(400);
    const cut = await fetch(`${daemon.url}/process.Process/Start`, {
      method: 'POST',
      headers: { 'content-type': 'application/connect+json' },
      body: enveloped({ process: { cmd: 'true' } }).subarray(0, 9),
    });
    expect(await cut.text()).toContain('invalid_argument');
    const typed = await call('/process.Process/List', {}, { 'content-type': 'text/plain' });
    expect(typed.status).toBe(415);
  });

  test('unary responses are compressed on request', async () => {
    const response = await call(
      '/filesystem.Filesystem/ListDir',
      { path: '/usr/bin' },
      { 'accept-encoding': 'gzip, deflate' },
    );
    expect(response.headers.get('content-encoding')).toBe('gzip');
    expect(((await response.json()) as { entries: unknown[] }).entries.length).toBeGreaterThan(10);
  });
});

describe('the access token', () => {
  const UNAUTHORIZED =
    'unauthorized access, please provide a valid access token or method signing if supported';

  test('may be any text: its bytes are compared, or what a browser makes of it', async () => {
    await using locked = await startDaemon();
    const send = (path: string, token: string, body?: string) =>
      fetch(locked.url + path, {
        method: body ? 'POST' : 'GET',
        headers: { 'x-access-token': token },
        body: body ?? null,
      });
    const bytes = (token: string) => Buffer.from(token).toString('latin1');
    expect((await send('/init', 'none', '{"accessToken":"tök€n"}')).status).toBe(204);
    for (const path of ['/envs', '/files?path=/proc/version']) {
      expect((await send(path, bytes('tök€n'))).status).toBe(200);
      expect((await send(path, bytes('tökn'))).status).toBe(401);
    }
  });

  test('is required by REST, unary calls and streams, and never logged', async () => {
    expect((await call('/init', { accessToken: 't0ken-in-use' })).status).toBe(204);
    try {
      const rest = await fetch(`${daemon.url}/envs`);
      expect(rest.status).toBe(401);
      expect(await rest.json()).toEqual({ code: 401, message: UNAUTHORIZED });
      const unary = await call('/process.Process/List', {});
      expect(unary.status).toBe(401);
      expect(await unary.json()).toEqual({ code: 'unauthenticated', message: UNAUTHORIZED });
      const streaming = await stream(
        '/process.Process/Start',
        { process: { cmd: 'true' } },
        { 'x-access-token': 'wrong' },
      );
      const text = await streaming.text();
      expect(text).toContain('"code":"unauthenticated"');
      expect(text).not.toContain('start');

      expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
      // A browser's preflight has no credentials, and its page must be able to read the refusal.
      const preflight = await fetch(`${daemon.url}/process.Process/List`, {
        method: 'OPTIONS',
        headers: { origin: 'https://example.com', 'access-control-request-method': 'POST' },
      });
      expect(preflight.status).toBe(204);
      expect(rest.headers.get('access-control-allow-origin')).toBe('*');
      const token = { 'x-access-token': 't0ken-in-use' };
      expect((await fetch(`${daemon.url}/envs`, { headers: token })).status).toBe(200);
      expect((await call('/process.Process/List', {}, token)).status).toBe(200);
      expect(
        await (await stream('/process.Process/Start', { process: { cmd: 'true' } }, token)).text(),
      ).toContain('end');

      expect((await call('/init', { accessToken: 'another' })).status).toBe(401);
      expect((await call('/init', {})).status).toBe(401);
      expect((await call('/init', { accessToken: 't0ken-in-use', defaultUser: 'root' })).status).toBe(204);
    } finally {
      expect(JSON.stringify(daemon.log)).not.toContain('t0ken');
    }
  });
});

describe('freeze and collapse', () => {
  const token = { 'x-access-token': 't0ken-in-use' };

  test('collapse: the counts add up, and the daemon’s huge pages grow', async () => {
    const huge = () =>
      Number(/AnonHugePages: +(\d+)/.exec(readFileSync(`/proc/${daemon.pid}/smaps_rollup`, 'utf8'))?.[1]);
    const before = huge();
    const response = await call('/collapse', '', token);
    expect(response.status).toBe(200);
    const statistics = (await response.json()) as Record<string, number>;
    expect(Object.keys(statistics)).toEqual([
      'regions',
      'chunks',
      'collapsed',
      'alreadyHuge',
      'skipped',
      'elapsedMs',
    ]);
    const { chunks = 0, collapsed = 0, alreadyHuge = 0, skipped = 0 } = statistics;
    expect(collapsed + alreadyHuge + skipped).toBe(chunks);
    expect(collapsed).toBeGreaterThan(0);
    // The garbage collection before it may split huge pages, so the growth is compared with the collapsed count.
    expect(huge()).toBeGreaterThanOrEqual(Math.min(before, alreadyHuge * 2048) + collapsed * 2048);
  });

  test('freeze: a counting process stops within 50 ms of the response and continues after the thaw', async () => {
    needs('cgroup v2');
    const file = `${daemon.scratch}/count`;
    const body = {
      process: { cmd: 'bash', args: ['-c', `while :; do printf . >> ${file}; done`] },
      tag: 'counter',
    };
    const counting = await stream('/process.Process/Start', body, token);
    const count = () => readFileSync(file, { flag: 'a+' }).length;
    await expect.poll(count).toBeGreaterThan(0);
    const frozen = await fetch(`${daemon.url}/freeze?maxWaitMs=10000`, { method: 'POST', headers: token });
    expect(frozen.status).toBe(200);
    expect(await frozen.json()).toMatchObject({
      mode: 'legacy',
      requested: 2,
      frozen: 2,
      notFrozen: 0,
      failed: 0,
    });
    const deadline = performance.now() + 50;
    while (performance.now() < deadline);
    const stopped = count();
    const start = await stream('/process.Process/Start', { process: { cmd: 'true' } }, token);
    expect(await start.text()).toContain('"code":"unavailable"');
    expect(count()).toBe(stopped);
    expect((await fetch(`${daemon.url}/unfreeze`, { method: 'POST', headers: token })).status).toBe(204);
    await expect.poll(count).toBeGreaterThan(stopped);
    const kill = { process: { tag: 'counter' }, signal: 'SIGNAL_SIGKILL' };
    expect((await call('/process.Process/SendSignal', kill, token)).status).toBe(200);
    await counting.text();
  });
});
