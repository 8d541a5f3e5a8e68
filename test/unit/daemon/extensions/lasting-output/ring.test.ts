import { closeSync, openSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Disk } from '../../../../../src/daemon/extensions/lasting-output/disk.ts';
import { LastingOutput } from '../../../../../src/daemon/extensions/lasting-output/lasting-output.ts';
import { OutputPlaces } from '../../../../../src/daemon/extensions/lasting-output/output-places.ts';
import { Ring } from '../../../../../src/daemon/extensions/lasting-output/ring.ts';
import { newState } from '../../../../../src/daemon/extensions/lasting-output/state.ts';
import { OpenFile } from '../../../../../src/daemon/linux/files/open-file.ts';
import { QUICK } from '../../../../../src/daemon/linux/lanes/lane.ts';
import { Lanes } from '../../../../../src/daemon/linux/lanes/lanes.ts';
import { WriteGate } from '../../../../../src/daemon/services/pause/write-gate.ts';
import { RecordStore } from '../../../../../src/daemon/services/records/record-store.ts';
import { openFiles } from '../../../../support/machine/proc.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { until } from '../../../../support/until.ts';

const lanes = new Lanes({ limitMs: 10_000, threads: 4 });

/** A file that refuses what is behind a position of it, as a full disk does, and takes a part of what crosses that. */
class FullFile extends OpenFile {
  end = Number.POSITIVE_INFINITY;

  override async writev(batch: readonly Buffer[], position: number): Promise<number> {
    if (position >= this.end) throw Object.assign(new Error('ENOSPC'), { code: 'ENOSPC', syscall: 'write' });
    return super.writev([Buffer.concat(batch).subarray(0, this.end - position)], position);
  }
}

/** Everything that a ring has, read in pieces of this size. */
async function contentOf(ring: Ring, piece: number): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for (let at = ring.from; at < ring.to; ) {
    const read = await ring.read(at, piece);
    if (!read) throw new Error('dropped');
    pieces.push(read);
    at += read.length;
  }
  return Buffer.concat(pieces);
}

async function writeAtAnyPrice(ring: Ring, bytes: Buffer, offset: number): Promise<void> {
  try {
    await ring.write(bytes, offset);
  } catch {
    ring.stopGrowing(offset + bytes.length);
    await writeAtAnyPrice(ring, bytes, offset);
  }
}

describe('a ring', () => {
  test('has the last bytes, whatever the pieces and the disk, and the ring beside it is as it was', async () => {
    const path = join(scratch(), 'file');
    const writes = fc.array(fc.tuple(fc.integer({ min: 1, max: 25 }), fc.boolean()), { maxLength: 20 });
    const cases = fc.asyncProperty(
      fc.integer({ min: 1, max: 20 }),
      fc.integer({ min: 0, max: 30 }),
      writes,
      async (capacity, room, pieces) => {
        await using file = new FullFile(openSync(path, 'w+'), lanes, QUICK);
        const beside = new Ring(file, { base: capacity, capacity: 3, from: 0, to: 0 });
        await beside.write(Buffer.from('abc'), 0);
        const ring = new Ring(file, { base: 0, capacity, from: 0, to: 0 });
        let all = Buffer.alloc(0);
        for (const [length, isFull] of pieces) {
          file.end = isFull ? Math.min(room, capacity) : Number.POSITIVE_INFINITY;
          const bytes = Buffer.from(Array.from({ length }, (_, index) => (all.length + index) % 251));
          const offset = all.length;
          all = Buffer.concat([all, bytes]);
          await writeAtAnyPrice(ring, bytes, offset);
          expect(ring.to).toBe(all.length);
          expect(ring.to - ring.from).toBeLessThanOrEqual(capacity);
          if (!isFull) expect(ring.to - ring.from).toBeGreaterThanOrEqual(Math.min(capacity, length));
          expect(await contentOf(ring, 7)).toEqual(all.subarray(ring.from));
        }
        expect(String(await contentOf(beside, 10))).toBe('abc');
      },
    );
    await fc.assert(cases, { numRuns: 300 });
  });

  test('is described by its numbers at every moment, because its program may be killed', async () => {
    const path = join(scratch(), 'file');
    const lengths = fc.array(fc.tuple(fc.integer({ min: 1, max: 25 }), fc.integer({ max: 40, min: 0 })));
    const cases = fc.asyncProperty(fc.integer({ min: 1, max: 20 }), lengths, async (capacity, writes) => {
      const place = new OutputPlaces(new RecordStore(null, {}, () => {}), 1).take();
      if (!place) throw new Error('no place');
      const numbers = place.numbersOf(1);
      const bytesAt = (from: number, to: number) =>
        Buffer.from(Array.from({ length: to - from }, (_, index) => (from + index) % 251));
      const check = async (file: OpenFile) => {
        const [size = 0, from = 0, to = 0] = numbers;
        const found = new Ring(file, { base: 3, capacity: size, from, to: Math.max(from, to) });
        expect(await contentOf(found, 7)).toEqual(bytesAt(from, Math.max(from, to)));
      };
      class Watched extends OpenFile {
        override async writev(batch: readonly Buffer[], position: number): Promise<number> {
          await check(this);
          const count = await super.writev(batch, position);
          await check(this);
          return count;
        }
      }
      await using file = new Watched(openSync(path, 'w+'), lanes, QUICK);
      const ring = new Ring(file, { base: 3, capacity, from: 0, to: 0 }, numbers);
      let at = 0;
      for (const [length, missing] of writes) {
        at += missing > 30 ? missing : 0;
        await ring.write(bytesAt(at, at + length), at);
        at += length;
      }
      ring.detach();
      numbers.fill(0);
      expect(ring.to).toBe(at);
    });
    await fc.assert(cases, { numRuns: 100 });
  });

  test('that cannot grow is used further, from the first byte on', async () => {
    await using file = new FullFile(openSync(join(scratch(), 'file'), 'w+'), lanes, QUICK);
    const ring = new Ring(file, { base: 0, capacity: 2 ** 20, from: 0, to: 0 });
    const bytes = Buffer.from(Array.from({ length: 2 ** 18 }, (_, index) => index % 251));
    file.end = 100_000;
    await expect(ring.write(bytes, 0)).rejects.toThrow('ENOSPC');
    ring.stopGrowing(bytes.length);
    await ring.write(bytes, 0);
    expect([ring.from, ring.to]).toEqual([2 ** 18 - 100_000, 2 ** 18]);
    expect(await contentOf(ring, 65_536)).toEqual(bytes.subarray(-100_000));
  });

  test('tells a reader what was dropped while it was read', async () => {
    await using file = new OpenFile(openSync(join(scratch(), 'file'), 'w+'), lanes, QUICK);
    const ring = new Ring(file, { base: 0, capacity: 10, from: 0, to: 0 });
    await ring.write(Buffer.from('0123456789'), 0);
    const reading = ring.read(2, 5);
    await ring.write(Buffer.from('abc'), 10);
    expect(await reading).toBeNull();
    expect(String(await ring.read(3, 5))).toBe('34567');
  });
});

test('what was given back is not read any more, because its descriptor may be another file by then', async () => {
  const directory = scratch();
  const disk = new Disk(directory, lanes, new WriteGate());
  const terms = { bytes: 100, seconds: 1, dropsWhenFull: false };
  const file = await disk.open();
  const place = new OutputPlaces(new RecordStore(null, {}, () => {}), 1).take();
  if (!place) throw new Error('no place');
  const kept = new LastingOutput(newState(terms, true), file, disk, place);
  const [ring] = kept.rings.values();
  if (!ring) throw new Error('no ring');
  await ring.write(Buffer.from('theirs'), 0);
  expect(String(await kept.read(ring, 0, 100))).toBe('theirs');
  const reading = kept.read(ring, 0, 100);
  kept.close();
  expect(String(await reading)).toBe('theirs');
  await until('the file is closed', () => !openFiles(process.pid).some((one) => one.startsWith(directory)));
  writeFileSync(join(directory, 'other'), 'secret');
  const opened: number[] = [];
  // The kernel takes the lowest number that is free.
  for (let count = 0; count < 100 && opened.at(-1) !== file.fd; count++)
    opened.push(openSync(join(directory, 'other'), 'r'));
  await expect(kept.read(ring, 0, 100)).rejects.toThrow('the output is not kept any longer');
  for (const one of opened) closeSync(one);
});

test('while the file system is frozen, nothing is written, opened or closed', async () => {
  const gate = new WriteGate();
  const disk = new Disk(scratch(), lanes, gate);
  const file = await disk.open();
  gate.shut();
  const done: string[] = [];
  const writing = disk.run(async () => done.push('write'));
  const next = disk.run(async () => done.push('next'));
  await expect(disk.open()).rejects.toThrow('the file system is frozen');
  expect(done).toEqual([]);
  gate.open();
  await Promise.all([writing, next]);
  expect(done).toEqual(['write', 'next']);
  closeSync(file.fd);
});
