import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { API_KEY, startGateway, toSandbox } from '../support/programs/gateway.ts';
import { startGuests } from '../support/programs/guests.ts';
import { owned } from '../support/programs/owned.ts';
import { startedAlone } from '../support/programs/started-alone.ts';
import { freePort } from '../support/servers/free-port.ts';
import { startRedis } from '../support/servers/redis-server.ts';
import { ask, startRedisSet } from '../support/servers/redis-set.ts';
import { until } from '../support/until.ts';

const health = (port: number) =>
  fetch(`http://127.0.0.1:${port}/gateway/health`).then(
    ({ status }) => status,
    () => 0,
  );

test('a start waits for Redis: until it is there everything is refused with 503', async () => {
  const redis = await owned(startRedis());
  await redis.stop();
  const port = await freePort();
  const starting = startGateway({ port, args: [`--redis=${redis.url}`] });
  await until('it listens', () => health(port), Boolean);
  const url = `http://127.0.0.1:${port}`;
  const told = { code: 503, message: 'the gateway is starting: its registry is not available yet' };
  for (const [path, headers] of [
    ['/gateway/health', {}],
    ['/sandboxes', { 'x-api-key': API_KEY }],
    ['/', toSandbox('box')],
  ] as const) {
    const response = await fetch(url + path, { method: 'POST', body: 'x'.repeat(100_000), headers });
    expect([response.status, await response.json()]).toEqual([503, told]);
    expect(response.headers.get('retry-after')).toBe('1');
  }
  const socket = connect(port, '127.0.0.1');
  socket.write('GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n');
  expect(await text(socket)).toMatch(/^HTTP\/1.1 503 .*"the gateway is starting/s);

  await redis.start();
  const gateway = await owned(starting);
  expect(gateway.log).toContainEqual(
    expect.objectContaining({ msg: 'the registry is not available yet: the start tries again', level: 40 }),
  );
  const guests = await owned(startGuests(1));
  await gateway.register('box', guests.ports[0] ?? 0);
  expect((await fetch(`${url}/health`, { headers: toSandbox('box') })).status).toBe(204);
  expect(await health(port)).toBe(204);
});

test('so it does for Sentinels that hang', async () => {
  const set = await owned(startRedisSet(1));
  for (const sentinel of set.sentinels) sentinel.signal('SIGSTOP');
  const port = await freePort();
  const starting = startGateway({ port, args: set.flags });
  await until('it listens', () => health(port), Boolean);
  // The first question has failed: this takes the second that it may take.
  const first = startGateway({ args: [...set.flags, '--redis-wait=0'] });
  await expect(first).rejects.toThrow('gateway exited with 1');
  expect(await health(port)).toBe(503);
  for (const sentinel of set.sentinels) sentinel.signal('SIGCONT');
  await owned(starting);
  expect(await health(port)).toBe(204);
});

test('a start that waits ends in order at a signal', async () => {
  const port = await freePort();
  const alone = startedAlone(`--port=${port}`, '--redis=redis://127.0.0.1:1');
  await until('it listens', () => health(port), Boolean);
  alone.child.kill('SIGTERM');
  expect(await alone.ended).toMatchObject({ code: 0, complaint: '' });
});

test('a start that cannot succeed ends, with the reason', async () => {
  const redis = await owned(startRedis());
  await ask(redis.url, (client) => client.configSet('requirepass', 'the password'));
  const { port } = redis;
  // Nothing is waited for that does not come.
  expect(await startedAlone(`--redis=redis://:wrong@127.0.0.1:${port}`).ended).toEqual({
    ...{ code: 2, complaint: expect.stringMatching(/cannot reach the registry: WRONGPASS/) },
  });
  expect(await startedAlone(`--redis=redis://127.0.0.1:${port}`).ended).toEqual({
    ...{ code: 2, complaint: expect.stringMatching(/cannot reach the registry: NOAUTH/) },
  });
  // The connection to Redis would keep a process that never starts.
  const shared = ['--hook=true', '--hook-directory=/tmp'];
  expect(await startedAlone(`--redis=redis://:the%20password@127.0.0.1:${port}`, ...shared).ended).toEqual({
    code: 2,
    complaint: expect.stringMatching(/the hook directory '\/tmp' is shared/),
  });
  const other = await owned(startGateway());
  expect(await startedAlone(`--port=${other.port}`, '--redis=redis://127.0.0.1:1').ended).toEqual({
    code: 1,
    complaint: expect.stringMatching(/the port is taken/),
  });
});
