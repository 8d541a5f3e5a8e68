import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { PassThrough } from 'node:stream';
import pino from 'pino';
import { expect, test, vi } from 'vitest';
import { register } from '../../../src/gateway/leases/transitions.ts';
import { Exchanges } from '../../../src/gateway/proxy/exchanges.ts';
import { ConnectionPools } from '../../../src/gateway/proxy/pools.ts';
import { StaleConnections } from '../../../src/gateway/proxy/stale-connections.ts';
import { EmbeddedStore } from '../../../src/gateway/registry/embedded.ts';
import { Registry } from '../../../src/gateway/registry/registry.ts';
import { scratch } from '../../support/machine/scratch.ts';

test('a change of one record checks no keys, and goes through no other sandboxes', async () => {
  await using store = await EmbeddedStore.open(`${scratch()}/registry.db`);
  const registry = new Registry(store);
  const registration = {
    ...{
      id: 'box',
      address: '10.0.0.1',
      ip: '10.0.0.1',
      port: 1,
      accessToken: null,
      metadata: {},
      owner: null,
    },
    ...{ envdVersion: '0.6.4', onExpiry: 'pause' as const },
  };
  const put = () => registry.put('box', (_, now) => register(null, registration, 60, now));
  const { incarnation } = await put();
  using exchanges = new Exchanges(1024 ** 2);
  const pools = new ConnectionPools(1);
  using connections = new StaleConnections(exchanges, pools, registry, pino({ level: 'silent' }));
  const isAllowed = vi.fn(() => true);
  const stream = new PassThrough();
  const request = new IncomingMessage(new Socket());
  exchanges.add('box', { request, stream, party: 'box', incarnation, isAllowed });
  const all = vi.spyOn(exchanges, 'sandboxIds');
  await connections.check('box');
  expect([isAllowed.mock.calls.length, all.mock.calls.length, stream.destroyed]).toEqual([0, 0, false]);
  await connections.check(null);
  expect(isAllowed).toHaveBeenCalledOnce();
  await put();
  await connections.check('box');
  expect(stream.destroyed).toBe(true);
});
