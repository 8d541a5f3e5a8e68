// A process with a large heap that collapses it and reports the results to its parent.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { native } from '../../../src/daemon/linux/system/native.ts';
import { collectGarbage } from '../../../src/daemon/linux/system/self.ts';
import { Collapser } from '../../../src/daemon/services/pause/collapse.ts';

const LOAD_ROUNDS = 8;

native.reserveAddressSpace();
// V8 objects, wherever V8 places them, and one block that fills whole windows.
const block = Buffer.alloc(64 << 20, 7);
const records = Array.from({ length: 400_000 }, (_, index) => ({ index, text: `record ${index}` }));
const never = new AbortController().signal;

function hugeMib(): number {
  const kib = /^AnonHugePages:\s+(\d+)/m.exec(readFileSync('/proc/self/smaps_rollup', 'utf8'))?.[1];
  return Number(kib) / 1024;
}

function digest(): string {
  const hash = createHash('sha256').update(block);
  for (const { index, text } of records) hash.update(`${index}${text}`);
  return hash.digest('hex');
}

async function report(collapse: () => Promise<object>): Promise<void> {
  const before = hugeMib();
  const statistics = await collapse();
  process.send?.({ statistics, grownMib: hugeMib() - before });
}

/** A thread that fills, checks and frees memory until it is stopped; an error ends the process. */
function startChurn(): Worker {
  const churn = `
    const { createHash } = require('node:crypto');
    const { setImmediate: turn } = require('node:timers/promises');
    const sum = (block) => createHash('sha256').update(block).digest('hex');
    const expected = Array.from({ length: 256 }, (_, byte) => sum(Buffer.alloc(1 << 20, byte)));
    (async () => {
      const kept = [];
      for (let round = 0; ; round = (round + 1) % 256) {
        kept[round % 16] = { block: Buffer.alloc(1 << 20, round), byte: round };
        for (const { block, byte } of kept) if (sum(block) !== expected[byte]) throw new Error('memory changed');
        await turn();
      }
    })();`;
  return new Worker(churn, { eval: true });
}

async function underLoad(): Promise<void> {
  const expected = digest();
  const threads = [startChurn(), startChurn()];
  for (let round = 0; round < LOAD_ROUNDS; round++) {
    // The freed memory makes new windows for the next round.
    records.push(
      ...records.splice(0, 50_000).map(({ index, text }) => ({ index, text: ` ${text}`.slice(1) })),
    );
    await report(() => new Collapser().collapse(never));
  }
  records.sort((a, b) => a.index - b.index);
  if (digest() !== expected) throw new Error('memory changed');
  await Promise.all(threads.map((thread) => thread.terminate()));
}

/** The byte is kept until the collapse has ended, as the addon demands. */
async function collapseHeap(isCancelled: 0 | 1) {
  const cancelled = Buffer.of(isCancelled);
  const statistics = await native.collapseHeap(cancelled);
  cancelled.fill(0);
  return statistics;
}

const tasks: Record<string, () => Promise<void>> = {
  twice: async () => {
    // Before the first round only: both would split huge pages.
    collectGarbage('last-resort');
    native.trimHeap();
    await report(() => collapseHeap(0));
    await report(() => collapseHeap(0));
  },
  cancel: async () => {
    await report(() => collapseHeap(1));
    await report(() =>
      new Collapser().collapse(AbortSignal.abort()).catch((error) => ({ error: error.kind })),
    );
  },
  load: underLoad,
};

await tasks[process.argv[2] ?? '']?.();
process.disconnect?.();
