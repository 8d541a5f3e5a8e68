import { once } from 'node:events';
import type { Socket } from 'node:net';
import { expect, test } from 'vitest';
import { EnvdError } from '../../../../../src/base/errors.ts';
import { Quota } from '../../../../../src/base/quota.ts';
import { CallScope } from '../../../../../src/daemon/http/admission/call-scope.ts';
import { sharedLimits } from '../../../../support/clients/calls.ts';
import { connectTo } from '../../../../support/programs/served.ts';

const LIMIT = 256 * 1024;
const stop = new EnvdError('unavailable', 'the daemon is stopping');

interface Begun {
  readonly call: CallScope;
  readonly client: Socket;
  /** When the scope has ended. */
  readonly ended: Promise<void>;
}

/** A call of a client that has sent its head alone. */
async function begin(shared = sharedLimits()): Promise<Begun> {
  const begun = Promise.withResolvers<CallScope>();
  const ended = Promise.withResolvers<void>();
  const client = await connectTo((request, response) => {
    begun.resolve(
      new CallScope({ operation: 'POST /test', request, response }, shared, () => ended.resolve()),
    );
  });
  client.write('POST /test HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\n');
  return { call: await begun.promise, client, ended: ended.promise };
}

test('ends at the deadline, when the client goes, and when the daemon stops', async () => {
  const late = await begin();
  late.call.expireAfter(1, 'too late');
  await expect(late.call.pending().promise).rejects.toThrow('too late');
  const left = await begin();
  const { signal } = left.call;
  left.client.destroy();
  await left.ended;
  expect(signal.reason).toMatchObject({ kind: 'aborted', message: 'client disconnected' });
  const shutdown = new AbortController();
  const stopped = await begin(sharedLimits(undefined, shutdown.signal));
  const waiting = stopped.call.race(new Promise(() => {}));
  shutdown.abort(stop);
  await expect(waiting).rejects.toBe(stop);
});

test('a transfer goes on when the daemon begins to stop', async () => {
  const shutdown = new AbortController();
  const { call, client, ended } = await begin(sharedLimits(undefined, shutdown.signal));
  const signal = call.transfer(0);
  shutdown.abort(stop);
  expect(signal.aborted).toBe(false);
  client.destroy();
  await ended;
  expect(signal.reason).toMatchObject({ message: 'client disconnected' });
});

test('the transfer that has waited longest is dropped with its connection', async () => {
  const requests = new Quota(LIMIT, 'too much');
  const shared = { ...sharedLimits(), requests };
  const [silent, sending] = [await begin(shared), await begin(shared)];
  silent.call.transfer(LIMIT / 2);
  sending.call.transfer(LIMIT / 2);
  // Both are asked once what they have received since.
  expect([silent.call.hasMoved(), sending.call.hasMoved()]).toEqual([true, true]);
  sending.client.write('body');
  await once(sending.call.request, 'data');
  const third = await begin(shared);
  third.call.transfer(LIMIT / 2);
  await silent.ended;
  expect(silent.call.failure).toMatchObject({ kind: 'resource_exhausted', message: 'too much' });
  expect([sending.call.isAborted, third.call.isAborted]).toEqual([false, false]);
  expect(requests.sum).toBe(LIMIT);
});

test('what a call keeps counts until it has been served', async () => {
  const requests = new Quota(LIMIT, 'too much');
  const { call } = await begin({ ...sharedLimits(), requests });
  call.hold(LIMIT);
  expect(requests.sum).toBe(LIMIT);
  call.release();
  expect(requests.sum).toBe(0);
});

test('a call that has been served is not aborted while its answer is sent', async () => {
  const shutdown = new AbortController();
  const { call, client, ended } = await begin(sharedLimits(undefined, shutdown.signal));
  const { signal } = call;
  call.release();
  shutdown.abort(stop);
  call.response.end('done');
  client.resume();
  await ended;
  expect(signal.aborted).toBe(false);
});
