import { setTimeout as delay } from 'node:timers/promises';
import pino from 'pino';
import { expect, test } from 'vitest';
import { Scheduler, type SchedulerParts } from '../../../src/gateway/expiry/scheduler.ts';
import { until } from '../../support/until.ts';

test('a poll reads a page of what is due, however often it is woken, and all pages have their turn', async () => {
  const due = Array.from({ length: 2000 }, (_, index) => ({
    id: `s${index}`,
    host: 'dead',
    owner: 'eve',
    failures: 1,
  }));
  const read: string[] = [];
  let reads = 0;
  const registry = {
    async due(limit: number, offset: number) {
      reads++;
      const sandboxes = due.slice(offset, offset + limit);
      read.push(...sandboxes.map(({ id }) => id));
      return { sandboxes, nextInMs: Number.POSITIVE_INFINITY };
    },
    change: async () => undefined,
  } as unknown as SchedulerParts['registry'];
  const limits = { maxExpiries: 8, maxExpiriesPerHost: 8 };
  const expiration = {} as SchedulerParts['expiration'];
  const scheduler = new Scheduler({
    registry,
    expiration,
    owner: 'a',
    keptMs: null,
    logger: pino({ level: 'silent' }),
    ...limits,
  });
  scheduler.start();
  await new Promise((resolve) => setImmediate(resolve));
  expect(reads).toBe(1);
  const began = performance.now();
  const woken = setInterval(() => scheduler.wake(), 0);
  await delay(100);
  clearInterval(woken);
  // Every 5 ms at most.
  expect(reads).toBeLessThanOrEqual(5 + (performance.now() - began) / 5);
  while (new Set(read).size < due.length) await delay(20);
  await scheduler.stop();
});

test('work that goes on is not begun a second time when its claim has lapsed', async () => {
  const changed: string[] = [];
  const registry = {
    due: async () => ({
      sandboxes: ['in-work', 'new'].map((id) => ({ id, host: 'h', owner: null, failures: 0 })),
      nextInMs: Number.POSITIVE_INFINITY,
    }),
    change: async (id: string) => void changed.push(id),
  } as unknown as SchedulerParts['registry'];
  const ended = Promise.withResolvers<void>();
  const scheduler = new Scheduler({
    ...{ registry, owner: 'a', keptMs: null, maxExpiries: 8, maxExpiriesPerHost: 8 },
    expiration: { run: () => ended.promise } as unknown as SchedulerParts['expiration'],
    logger: pino({ level: 'silent' }),
  });
  void scheduler.work({ id: 'in-work' } as Parameters<Scheduler['work']>[0], 0);
  scheduler.start();
  await until('the others are claimed', () => changed.length > 0);
  ended.resolve();
  await scheduler.stop();
  expect(changed.slice(0, 1)).toEqual(['new']);
});
