import { describe, expect, test } from 'vitest';
import { WriteGate } from '../../../../../src/daemon/services/pause/write-gate.ts';

/** A source that yields what the test supplies. */
function slowSource() {
  const items: PromiseWithResolvers<IteratorResult<string>>[] = [Promise.withResolvers()];
  let asked = 0;
  let returned = false;
  const bring = (result: IteratorResult<string>) => {
    items.at(-1)?.resolve(result);
    items.push(Promise.withResolvers());
  };
  return {
    bring: (value: string) => bring({ value, done: false }),
    end: () => bring({ value: undefined, done: true }),
    asked: () => asked,
    returned: () => returned,
    [Symbol.asyncIterator]: (): AsyncIterator<string> => ({
      next: () => items[asked++]?.promise ?? Promise.reject(new Error('asked ahead')),
      return: async () => {
        returned = true;
        return { value: undefined, done: true as const };
      },
    }),
  };
}

describe('a shut gate', () => {
  test('refuses changes until it is opened', async () => {
    const gate = new WriteGate();
    gate.shut();
    gate.shut();
    await expect(gate.run(async () => 'done')).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'cannot change files: the file system is frozen, try again after the thaw',
    });
    gate.open();
    expect(await gate.run(async () => 'done')).toBe('done');
  });

  test('waits for all changes in progress, failed or not, and not at all without any', async () => {
    const gate = new WriteGate();
    await gate.whenIdle(0);
    const changes = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const;
    const outcomes = Promise.allSettled(changes.map(({ promise }) => gate.run(() => promise)));
    gate.shut();
    let rested = false;
    const rest = gate.whenIdle(60_000).then(() => {
      rested = true;
    });
    changes[0].reject(new Error('failed'));
    await new Promise(setImmediate);
    expect(rested).toBe(false);
    changes[1].resolve();
    await rest;
    expect((await outcomes).map(({ status }) => status)).toEqual(['rejected', 'fulfilled']);
  });

  test('gives up when a change takes too long', async () => {
    const gate = new WriteGate();
    const change = Promise.withResolvers<void>();
    const outcome = gate.run(() => change.promise);
    await expect(gate.whenIdle(5, 'upgrade')).rejects.toThrow('cannot upgrade now: files are being changed');
    await expect(gate.whenIdle(5)).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'cannot fsfreeze now: files are being changed, try again later',
    });
    change.resolve();
    await outcome;
    await gate.whenIdle(0);
  });
});

describe('a step of a change that waits for its client', () => {
  test('waits for the gate to be opened, and the change does not delay a freeze between its steps', async () => {
    const gate = new WriteGate();
    expect(await gate.runStep(async () => 'first')).toBe('first');
    gate.shut();
    await gate.whenIdle(0);
    let isDone = false;
    const step = gate.runStep(async () => {
      isDone = true;
    });
    await new Promise(setImmediate);
    expect(isDone).toBe(false);
    gate.open();
    // Shut again at once: the step goes on waiting.
    gate.shut();
    await new Promise(setImmediate);
    expect(isDone).toBe(false);
    gate.open();
    await step;
    expect(isDone).toBe(true);
    await gate.whenIdle(0);
  });

  test('counts as in progress, and forwards its error', async () => {
    const gate = new WriteGate();
    const { promise, reject } = Promise.withResolvers<void>();
    const step = gate.runStep(() => promise);
    await expect(gate.whenIdle(5)).rejects.toMatchObject({ kind: 'unavailable' });
    reject(new Error('no room'));
    await expect(step).rejects.toThrow('no room');
    await gate.whenIdle(0);
  });
});

describe('a change that reads from its client', () => {
  test('does not delay a freeze, and continues when the gate is opened', async () => {
    const gate = new WriteGate();
    const source = slowSource();
    const received: string[] = [];
    const change = gate.run(async () => {
      for await (const item of gate.leaveWhileWaiting(source)) received.push(item);
      received.push('end');
    });
    source.bring('a');
    await expect.poll(() => received).toEqual(['a']);
    gate.shut();
    await gate.whenIdle(0);
    source.bring('b');
    await new Promise(setImmediate);
    expect(received).toEqual(['a']);
    gate.open();
    await expect.poll(() => received).toEqual(['a', 'b']);
    gate.shut();
    source.end();
    await new Promise(setImmediate);
    expect(received).toEqual(['a', 'b']);
    gate.open();
    await change;
    expect(received).toEqual(['a', 'b', 'end']);
    await gate.whenIdle(0);
  });

  test('counts as in progress while it processes an item', async () => {
    const gate = new WriteGate();
    const source = slowSource();
    const dealing = Promise.withResolvers<void>();
    const change = gate.run(async () => {
      for await (const _ of gate.leaveWhileWaiting(source)) await dealing.promise;
    });
    source.bring('a');
    await expect.poll(source.asked).toBe(1);
    await expect(gate.whenIdle(5)).rejects.toMatchObject({ kind: 'unavailable' });
    dealing.resolve();
    source.end();
    await change;
  });

  test('forwards errors of the source and of the consumer', async () => {
    const gate = new WriteGate();
    const source = slowSource();
    const broken = gate.run(async () => {
      for await (const _ of gate.leaveWhileWaiting(source)) throw new Error('no room');
    });
    source.bring('a');
    await expect(broken).rejects.toThrow('no room');
    expect(source.returned()).toBe(true);
    const failing = (async function* (): AsyncGenerator<string> {
      yield* [];
      throw new Error('client gone');
    })();
    const gone = gate.run(async () => {
      for await (const _ of gate.leaveWhileWaiting(failing)) expect.unreachable();
    });
    await expect(gone).rejects.toThrow('client gone');
    await gate.whenIdle(0);
  });
});
