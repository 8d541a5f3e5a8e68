import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { startGateway, type TestGateway, toSandbox } from '../support/programs/gateway.ts';
import { startGuests } from '../support/programs/guests.ts';
import { hookCalls, phase, record } from '../support/servers/hook.ts';
import { until } from '../support/until.ts';

const health = (gateway: TestGateway, id: string) =>
  fetch(`${gateway.url}/health`, { headers: toSandbox(id) }).then(({ status }) => status);

test.each([
  ['/freeze', 'refreshes', { duration: 60 }],
  ['/freeze', 'timeout', { timeout: 60 }],
  ['/collapse', 'refreshes', { duration: 60 }],
])(
  'while %s is in flight, a longer time to live by %s is accepted and the guest thawed',
  async (operation, call, body) => {
    const file = join(scratch(), 'told');
    await using guests = await startGuests(1);
    await using gateway = await startGateway({ args: [`--hook=${record(file)}`] });
    const { reached, release } = guests.hold(operation);
    await gateway.register('one', guests.ports[0] ?? 0, { timeout: 0 });
    await reached;
    const answer = gateway.call(`POST /sandboxes/one/${call}`, body);
    if (operation === '/freeze') {
      // The response must not come yet, which no event shows.
      expect(await Promise.race([answer.then(() => 'answered'), delay(100, 'waits')])).toBe('waits');
      release();
    }
    expect((await answer).status).toBe(204);
    expect((await gateway.call('GET /sandboxes/one')).body).toMatchObject({ phase: 'running', failures: 0 });
    expect(guests.isFrozen(0)).toBe(false);
    expect(await health(gateway, 'one')).toBe(204);
    expect(hookCalls(file)).toEqual([]);
    release();
  },
);

test('while a hook runs, a longer time to live is refused, and the sandbox is paused', async () => {
  const directory = scratch();
  const [file, open] = [join(directory, 'told'), join(directory, 'open')];
  await using guests = await startGuests(1);
  const hook = `${record(file)}; while [ ! -e '${open}' ]; do sleep 0.01; done`;
  await using gateway = await startGateway({ args: [`--hook=${hook}`] });
  await gateway.register('one', guests.ports[0] ?? 0, { timeout: 0 });
  await phase(gateway, 'one', 'committed');
  for (const [operation, body] of [
    ['refreshes', { duration: 60 }],
    ['timeout', { timeout: 60 }],
  ] as const) {
    const answer = await gateway.call(`POST /sandboxes/one/${operation}`, body);
    expect(answer.body).toEqual({ code: 404, message: "sandbox 'one' has expired" });
  }
  expect((await gateway.call('POST /sandboxes', { sandboxID: 'one', address: 'a' })).status).toBe(409);
  writeFileSync(open, '');
  await phase(gateway, 'one', 'paused');
  expect(hookCalls(file)).toHaveLength(1);
  expect(guests.isFrozen(0)).toBe(true);
});

test('a longer time to live at a random moment of an expiry is either accepted or refused, never both', async () => {
  const count = 60;
  const file = join(scratch(), 'told');
  await using guests = await startGuests(count);
  await using gateway = await startGateway({ args: [`--hook=${record(file)}`] });
  const outcomes = await Promise.all(
    guests.ports.map(async (port, index) => {
      const id = `s${index}`;
      await gateway.register(id, port, { timeout: 100 });
      await gateway.call(`POST /sandboxes/${id}/timeout`, { timeout: 0 });
      // At a random moment of the expiry.
      await delay(Math.random() * 800);
      const { status } = await gateway.call(`POST /sandboxes/${id}/refreshes`, { duration: 600 });
      await phase(gateway, id, status === 204 ? 'running' : 'paused');
      return { id, index, status };
    }),
  );
  const heard = new Set(hookCalls(file).map(({ sandboxID }) => sandboxID));
  for (const { id, index, status } of outcomes) {
    expect([204, 404]).toContain(status);
    expect([id, heard.has(id), guests.isFrozen(index)]).toEqual([id, status === 404, status === 404]);
  }
});

test('a sandbox that is removed while it is frozen is thawed', async () => {
  await using guests = await startGuests(1);
  await using gateway = await startGateway();
  const { reached, release } = guests.hold('/collapse');
  await gateway.register('one', guests.ports[0] ?? 0, { timeout: 0 });
  await reached;
  expect(guests.isFrozen(0)).toBe(true);
  expect((await gateway.call('DELETE /sandboxes/one')).status).toBe(204);
  release();
  await expect.poll(() => guests.isFrozen(0)).toBe(false);
});

test('a sandbox that is removed while its hook runs is not thawed', async () => {
  const directory = scratch();
  const open = join(directory, 'open');
  await using guests = await startGuests(1);
  await using gateway = await startGateway({
    args: [`--hook=while [ ! -e '${open}' ]; do sleep 0.01; done`],
  });
  await gateway.register('one', guests.ports[0] ?? 0, { timeout: 0 });
  await phase(gateway, 'one', 'committed');
  expect((await gateway.call('DELETE /sandboxes/one')).status).toBe(204);
  writeFileSync(open, '');
  await until('that is known', () =>
    gateway.log.some(({ msg }) => msg.startsWith('a sandbox was changed or removed')),
  );
  expect(guests.isFrozen(0)).toBe(true);
  expect((await gateway.call('GET /gateway/metrics')).text).toContain('expiries_total{outcome="removed"} 0');
});
