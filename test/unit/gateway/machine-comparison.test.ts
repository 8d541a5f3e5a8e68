import { join } from 'node:path';
import pino from 'pino';
import { expect, test } from 'vitest';
import { MachineComparison } from '../../../src/gateway/expiry/machine-comparison.ts';
import type { Sandbox } from '../../../src/gateway/leases/sandbox.ts';
import { acquire, commitExpiry, complete, register } from '../../../src/gateway/leases/transitions.ts';
import { EmbeddedStore } from '../../../src/gateway/registry/embedded.ts';
import { Registry } from '../../../src/gateway/registry/registry.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { until } from '../../support/until.ts';

test('a sandbox whose pause ends while the machines are listed is not taken for one whose machine has ended', async () => {
  await using store = await EmbeddedStore.open(join(scratch(), 'registry.db'));
  const registry = new Registry(store);
  const at = { address: '10.0.0.1', ip: '10.0.0.1', port: 1, accessToken: null, envdVersion: '' };
  const wanted = { id: 's', ...at, metadata: {}, owner: null, onExpiry: 'pause' } as const;
  await registry.put('s', (before, now) => register(before, wanted, 0, now));
  await registry.change('s', (current, now) => acquire(current, 'a', now));
  const comparison = new MachineComparison({
    ...{ registry, intervalMs: 60_000, graceMs: 0, removes: true, onChange() {} },
    logger: pino({ level: 'silent' }),
    async list() {
      // The machine is gone already, and its snapshot is not there yet.
      const pause = (current: Sandbox, now: number) =>
        complete(
          commitExpiry(current, { freeze: null, collapse: null }, now),
          { byHook: true, keptMs: null },
          now,
        );
      await registry.change('s', pause);
      return { ids: new Set(), ended: new Map([['s', 'it has ended']]) };
    },
  });
  comparison.start();
  await until('it has compared', () => comparison.tally.compared > 0);
  await comparison.stop();
  expect((await registry.find('s')).sandbox?.phase).toBe('paused');
});
