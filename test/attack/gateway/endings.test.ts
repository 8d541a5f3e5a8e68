import { renameSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { scratch } from '../../support/machine/scratch.ts';
import { startGateway, type TestGateway } from '../../support/programs/gateway.ts';
import { owned } from '../../support/programs/owned.ts';
import { startRawSandbox } from '../../support/programs/raw-sandbox.ts';
import { hookCalls, phase, record } from '../../support/servers/hook.ts';
import { until } from '../../support/until.ts';

const answer = (body: string, status = '200 OK') =>
  `HTTP/1.1 ${status}\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`;
const NOT_FROZEN = answer(JSON.stringify({ notFrozen: 1, failed: 0, unobservable: 0 }));

/** A guest that answers the gateway's operations with `refusal`, and others with a stream that does not end. */
const refusing = (refusal: string) =>
  owned(
    startRawSandbox((socket, head) => {
      if (/^POST \/(freeze|unfreeze|collapse)/.test(head)) socket.end(refusal);
      else socket.write('HTTP/1.1 200 OK\r\n\r\nbegun');
    }),
  );

/** Begins a stream of a sandbox, and tells whether it still goes on. */
async function stream(gateway: TestGateway, id: string, ...lines: readonly string[]) {
  const socket = connect(gateway.port, '127.0.0.1').on('error', () => {});
  onTestFinished(() => {
    socket.destroy();
  });
  const state = { isOpen: true, received: '' };
  socket.on('data', (data) => {
    state.received += String(data);
  });
  socket.once('close', () => {
    state.isOpen = false;
  });
  socket.write(['GET / HTTP/1.1', 'host: a', `svc-sandbox-id: ${id}`, ...lines, '', ''].join('\r\n'));
  await until('it has begun', () => state.received.includes('begun'));
  return state;
}

test.each([
  ['500', answer('', '500 No')],
  ['that it is not frozen', NOT_FROZEN],
])(
  'a guest that answers with %s ends nevertheless, and its clients are disconnected at its time',
  async (_name, refusal) => {
    const file = join(scratch(), 'told');
    const gateway = await owned(startGateway({ args: [`--hook=${record(file)}`] }));
    const guest = await refusing(refusal);
    await gateway.register('kept', guest.port, { timeout: 3 });
    const client = await stream(gateway, 'kept');
    await gateway.register('removed', guest.port, { timeout: 0, onExpiry: 'remove' });
    expect(await phase(gateway, 'removed', 'gone')).toBe('gone');
    expect(hookCalls(file)).toMatchObject([{ sandboxID: 'removed', freeze: null, collapse: null }]);
    await until('the client is disconnected', () => !client.isOpen);
    expect((await gateway.call('GET /sandboxes/kept')).body.phase).not.toBe('paused');
    expect(await until('it is paused', () => hookCalls(file)[1], Boolean, 40_000)).toMatchObject({
      ...{ sandboxID: 'kept', outcome: 'pause', freeze: null },
    });
    expect(await phase(gateway, 'kept', 'paused')).toBe('paused');
  },
);

test('a guest that cannot be thawed after a failed hook does not stay for ever', async () => {
  const directory = scratch();
  const gateway = await owned(startGateway({ args: [`--hook=[ -e '${directory}/works' ]`] }));
  const guest = await owned(
    startRawSandbox((socket, head) => {
      if (head.startsWith('POST /unfreeze')) socket.end(answer('', '500 No'));
      else socket.end(answer(JSON.stringify({ notFrozen: 0, failed: 0, unobservable: 0 })));
    }),
  );
  await gateway.register('box', guest.port, { timeout: 0 });
  await until('it cannot be thawed', () => gateway.log.some(({ step }) => step === 'thaw'));
  writeFileSync(join(directory, 'works'), '');
  expect(await phase(gateway, 'box', 'paused')).toBe('paused');
});

test('a stream ends with what it was allowed for: another registration, another owner, a key that is gone', async () => {
  const keys = join(scratch(), 'keys');
  const write = (...lines: readonly string[]) => {
    writeFileSync(`${keys}.new`, ['platform key', ...lines, ''].join('\n'));
    renameSync(`${keys}.new`, keys);
  };
  write('client ada key-of-ada', 'client bob key-of-bob');
  const gateway = await owned(startGateway({ args: [`--key-file=${keys}`, '--require-key'] }));
  const guest = await refusing('');
  for (const id of ['same', 'moved', 'given'])
    await gateway.register(id, guest.port, { timeout: 600, owner: 'ada' });
  const begin = (id: string, key = 'key-of-ada') => stream(gateway, id, `x-api-key: ${key}`);
  const [same, moved, given] = [await begin('same'), await begin('moved'), await begin('given')];
  await gateway.register('bobs', guest.port, { timeout: 600, owner: 'bob' });
  const bobs = await begin('bobs', 'key-of-bob');
  await gateway.register('moved', guest.port, { timeout: 600, owner: 'ada', address: '127.0.0.2' });
  await gateway.register('given', guest.port, { timeout: 600, owner: 'bob' });
  await until('they have ended', () => !moved.isOpen && !given.isOpen);
  expect((await gateway.call('POST /sandboxes/same/timeout', { timeout: 500 })).status).toBe(204);
  write('client ada key-of-ada');
  await until('that of the key has ended', () => !bobs.isOpen);
  expect(same.isOpen).toBe(true);
});
