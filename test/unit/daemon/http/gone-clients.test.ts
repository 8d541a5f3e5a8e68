import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import { Connections } from '../../../../src/base/http/connections.ts';
import { GoneClients } from '../../../../src/daemon/http/gone-clients.ts';
import { nameOfConnection } from '../../../../src/daemon/linux/network/unanswered.ts';

beforeEach(() => void vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] }));
afterEach(() => void vi.useRealTimers());

const nextLook = () => vi.advanceTimersByTimeAsync(10_000);

/** A connection, and `GoneClients` that is told the silence of its client, in milliseconds; null: it owes no answer. */
async function oneConnection() {
  const connections = new Connections(10);
  const server = createServer();
  connections.attach(server, () => {});
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1').on('error', () => {});
  await once(server, 'connection');
  const [socket] = connections.sockets();
  if (!socket) throw new Error('there is no connection');
  const state: { silentMs: number | null; failure: Error | null; looks: number } = {
    ...{ silentMs: null, failure: null, looks: 0 },
  };
  const onFailure = vi.fn();
  const read = async () => {
    state.looks++;
    if (state.failure) throw state.failure;
    return new Map(state.silentMs === null ? [] : [[nameOfConnection(socket), state.silentMs]]);
  };
  const gone = new GoneClients(connections, read, onFailure);
  onTestFinished(() => {
    gone[Symbol.dispose]();
    client.destroy();
    server.close();
  });
  return { socket, client, state, onFailure };
}

test('a client that owes an answer in two looks is gone when it has acknowledged nothing for 45 s', async () => {
  const { socket, state } = await oneConnection();
  for (const silentMs of [24_000, 34_000, 44_999]) {
    state.silentMs = silentMs;
    await nextLook();
    expect(socket.destroyed).toBe(false);
  }
  state.silentMs = 55_000;
  await nextLook();
  expect(socket.destroyed).toBe(true);
});

test('a client that answers rare probes keeps its connection, even if a look falls between a probe and its answer', async () => {
  const { socket, state } = await oneConnection();
  for (const silentMs of [null, 120_000, null, 102_000, null]) {
    state.silentMs = silentMs;
    await nextLook();
  }
  expect(socket.destroyed).toBe(false);
});

test('nothing is read while there is no connection, and a look that fails is told', async () => {
  const { socket, client, state, onFailure } = await oneConnection();
  state.failure = new Error('no answer');
  await nextLook();
  expect(onFailure).toHaveBeenCalledExactlyOnceWith(state.failure);
  client.destroy();
  if (!socket.closed) await once(socket, 'close');
  await nextLook();
  expect(state.looks).toBe(1);
});
