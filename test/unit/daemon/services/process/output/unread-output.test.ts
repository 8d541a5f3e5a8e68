import fc from 'fast-check';
import { expect, test } from 'vitest';
import type {
  OutputEvent,
  ProcessEvent,
} from '../../../../../../src/daemon/services/process/output/events.ts';
import { UnreadOutput } from '../../../../../../src/daemon/services/process/output/unread-output.ts';

const output = (text: string): OutputEvent => ({
  type: 'output',
  stream: 'stdout',
  bytes: Buffer.from(text),
  offset: 0,
});

test('entries keep their numbers after others were dropped', () => {
  const action = fc.oneof(
    fc.record({ append: fc.nat(1000) }),
    fc.record({ forget: fc.double({ min: 0, max: 1, noNaN: true }) }),
  );
  fc.assert(
    fc.property(fc.array(action, { maxLength: 400 }), (actions) => {
      const log = new UnreadOutput();
      const events: { event: ProcessEvent; position: number }[] = [];
      let forgotten = 0;
      for (const step of actions) {
        if ('append' in step) {
          const event = output(String(events.length));
          log.append(event, step.append);
          events.push({ event, position: (events.at(-1)?.position ?? 0) + step.append });
        } else {
          forgotten = Math.max(forgotten, Math.floor(step.forget * events.length));
          log.forget(forgotten);
        }
      }
      expect(log.end).toBe(events.length);
      expect(log.position).toBe(events.at(-1)?.position ?? 0);
      expect(log.at(-1)).toBeNull();
      expect(log.at(log.end)).toBeNull();
      events.forEach((entry, number) => {
        expect(log.at(number)).toEqual(number < forgotten ? null : entry);
      });
    }),
  );
});

test('a batch ends after the event that exceeds the limit, or at the end of the log', () => {
  const log = new UnreadOutput();
  for (const text of ['a', 'b', 'c', 'd']) log.append(output(text), 10);
  const first = log.take({ next: 0, position: 0 }, 15);
  expect(first.events.map((event) => event.type === 'output' && String(event.bytes))).toEqual(['a', 'b']);
  expect(first.end).toEqual({ next: 2, position: 20 });
  const second = log.take(first.end, 1000);
  expect(second.events).toHaveLength(2);
  expect(second.end).toEqual({ next: 4, position: 40 });
  expect(log.take(second.end, 1000).events).toEqual([]);
});

test('readers at the same position share a batch until the log grows', () => {
  const log = new UnreadOutput();
  log.append(output('a'), 1);
  const start = { next: 0, position: 0 };
  const batch = log.take(start, 100);
  expect(log.take(start, 100).events).toBe(batch.events);
  log.append(output('b'), 1);
  expect(log.take(start, 100).events).toHaveLength(2);
  expect(batch.events).toHaveLength(1);
});

test('batches of other sizes do not displace a shared one', () => {
  const log = new UnreadOutput();
  for (const text of ['a', 'b', 'c']) log.append(output(text), 10);
  const start = { next: 0, position: 0 };
  const [small, large] = [log.take(start, 10), log.take(start, 100)];
  expect([small.events.length, large.events.length]).toEqual([1, 3]);
  expect(log.take(start, 10)).toBe(small);
  expect(log.take(start, 100)).toBe(large);
});

test('a batch that every reader has taken is not kept', () => {
  const log = new UnreadOutput();
  for (const text of ['a', 'b', 'c', 'd']) log.append(output(text), 10);
  const start = { next: 0, position: 0 };
  const [small, large] = [log.take(start, 10), log.take(start, 20)];
  const later = log.take({ next: 2, position: 20 }, 100);
  log.forget(2);
  for (const [batch, bytes] of [
    [small, 10],
    [large, 20],
  ] as const) {
    expect(batch.events).not.toHaveLength(0);
    expect(log.take(start, bytes).events).toEqual([]);
  }
  expect(log.take({ next: 2, position: 20 }, 100)).toBe(later);
});

test('a batch that was taken is not kept in a log that is cleared', () => {
  const log = new UnreadOutput();
  log.append(output('a'), 10);
  const start = { next: 0, position: 0 };
  expect(log.take(start, 100).events).toHaveLength(1);
  log.clear();
  expect(log.take(start, 100).events).toEqual([]);
});
