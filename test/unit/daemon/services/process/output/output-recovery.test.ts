import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { openSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import type { Offsets, OutputStream } from '../../../../../../src/daemon/services/process/output/events.ts';
import { History } from '../../../../../../src/daemon/services/process/output/history.ts';
import {
  type KeptOutput,
  recoverOutput,
  restoreHistory,
} from '../../../../../../src/daemon/services/process/output/output-recovery.ts';
import { OutputStore } from '../../../../../../src/daemon/services/process/output/output-store.ts';
import { textOf } from '../../../../../support/clients/counted-output.ts';

const WRITER = fileURLToPath(new URL('../../../../../support/workers/writes-output.ts', import.meta.url));
const LIMIT = 64 * 1024;
const NONE = { stdout: 0, stderr: 0, pty: 0 };

const NOTHING: KeptOutput = { from: NONE, records: () => [] };

/** Returns the bytes of all streams so far. */
function assertWhole({ from, records }: KeptOutput): Offsets {
  const offsets = { ...from };
  for (const { stream, bytes } of records()) {
    expect(bytes.equals(textOf(stream, offsets[stream], bytes.length))).toBe(true);
    offsets[stream] += bytes.length;
  }
  return offsets;
}

test.each([1, 2, 3, 4])('what is kept is found when the program was killed while it wrote (%i)', async () => {
  const writer = spawn(process.execPath, [WRITER, `${LIMIT}`], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [text] = await once(writer.stdout, 'data');
  const memory = openSync(`/proc/${writer.pid}/fd/${Number(text)}`, 'r');
  // Not a wait for anything: the writer is killed at a moment that it does not choose.
  await delay(Math.random() * 200);
  writer.kill('SIGKILL');
  await once(writer, 'exit');

  const kept = recoverOutput(memory);
  expect([...kept.keys()].sort()).toEqual([1, 2, 3]);
  let records = 0;
  for (const output of kept.values()) {
    assertWhole(output);
    records += [...output.records()].length;
  }
  // Of one process there may be none: the store may just have made room of its output.
  expect(records).toBeGreaterThan(0);
});

test('recovered output can be resumed in a store of another size', () => {
  const store = new OutputStore(LIMIT, 2 * LIMIT);
  const history = new History(store);
  const totals = { ...NONE };
  for (const stream of ['stdout', 'stderr', 'stdout'] satisfies OutputStream[]) {
    history.append(stream, textOf(stream, totals[stream], 50_000), totals);
    totals[stream] += 50_000;
  }
  const output = recoverOutput(store.memory.descriptor ?? -1).get(history.process);
  const other = new OutputStore(LIMIT / 2, LIMIT);
  const next = new History(other);
  expect(restoreHistory(next, output ?? NOTHING, () => {})).toEqual(totals);
  const again = recoverOutput(other.memory.descriptor ?? -1).get(1);
  expect(again?.from.stdout).toBeGreaterThan(60_000);
  expect(assertWhole(again ?? NOTHING)).toEqual(totals);
});

test('output of a process that is forgotten is not found; one without kept output has its totals', () => {
  const store = new OutputStore(LIMIT, 2 * LIMIT);
  const gone = new History(store);
  const cleared = new History(store);
  for (const history of [gone, cleared]) history.append('pty', Buffer.from('abc'), NONE);
  gone[Symbol.dispose]();
  cleared.clear();
  const kept = recoverOutput(store.memory.descriptor ?? -1);
  expect([...kept.keys()]).toEqual([2]);
  const output = kept.get(2);
  expect(output?.from).toEqual({ ...NONE, pty: 3 });
  expect([...(output?.records() ?? [])]).toEqual([]);
});

test('recovery takes little memory, however much is kept', () => {
  const [kept, most] = [32 * 1024 * 1024, 1024 * 1024];
  const store = new OutputStore(kept, kept);
  const history = new History(store);
  const piece = Buffer.alloc(kept / 64);
  for (let written = 0; written < kept; written += piece.length)
    history.append('pty', piece, { ...NONE, pty: written });
  const before = process.memoryUsage().arrayBuffers;
  const output = recoverOutput(store.memory.descriptor ?? -1).get(1) ?? NOTHING;
  let recovered = 0;
  for (const { bytes } of output.records()) recovered += bytes.length;
  expect(recovered).toBeGreaterThan(kept * 0.9);
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(most);
});
