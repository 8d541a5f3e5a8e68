import { join } from 'node:path';
import pino from 'pino';
import { expect, test } from 'vitest';
import { monotonicMs } from '../../../src/base/monotonic.ts';
import { Addresses } from '../../../src/gateway/access/addresses.ts';
import { Expiration } from '../../../src/gateway/expiry/expiration.ts';
import { HeldLease } from '../../../src/gateway/expiry/held-lease.ts';
import { MachineMaker } from '../../../src/gateway/expiry/machine-maker.ts';
import type { HookRequest } from '../../../src/gateway/hooks/hook.ts';
import { acquire, pause, register } from '../../../src/gateway/leases/transitions.ts';
import { EmbeddedStore } from '../../../src/gateway/registry/embedded.ts';
import { type Change, Registry } from '../../../src/gateway/registry/registry.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startAgent } from '../../support/programs/agent.ts';

/** Another change comes right before a change. */
class OvertakenRegistry extends Registry {
  overtaking: Change | null = null;

  override async change(id: string, change: Change) {
    const { overtaking } = this;
    this.overtaking = null;
    if (overtaking) await super.change(id, overtaking);
    return super.change(id, change);
  }
}

test('memory that a client wants to keep is frozen, also if it says so right when an expiry gives the memory up', async () => {
  await using agent = await startAgent();
  await using store = await EmbeddedStore.open(join(scratch(), 'registry.db'));
  const registry = new OvertakenRegistry(store);
  const address = '127.0.0.1';
  const addresses = new Addresses({ allowAddresses: [{ address, prefix: null }], allowPorts: [] });
  const asked: HookRequest[] = [];
  const hook = { run: async (request: HookRequest) => String(asked.push(request)), forget() {} };
  const logger = pino({ level: 'silent' });
  const drained = async () => new Set<string>();
  const expiration = new Expiration({
    ...{ registry, addresses, logger, owner: 'a', onGone() {}, resumedFor: () => 60 },
    hooks: { expire: hook, kill: null, resume: null, create: null },
    maker: new MachineMaker({ hook: null, drained, addresses, logger }),
    paused: { byHook: true, keptMs: null },
  });
  const at = { address, ip: address, port: agent.port, accessToken: null, envdVersion: '' };
  const wanted = { id: 's', ...at, metadata: {}, owner: null, onExpiry: 'pause', keepMemory: false } as const;
  await registry.put('s', (before, now) => register(before, wanted, 0, now));
  const claimed = await registry.change('s', (current, now) => acquire(current, 'a', now));
  registry.overtaking = (current, now) => pause(current, now, 'request', true);
  const lease = new HeldLease(monotonicMs(), new AbortController().signal);
  if (claimed) await expiration.run(claimed, lease);
  expect(asked).toMatchObject([{ event: 'expire', outcome: 'pause', freeze: { notFrozen: 0 } }]);
  expect(asked[0]).not.toHaveProperty('memory');
  expect((await registry.find('s')).sandbox?.phase).toBe('paused');
});
