import { openSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { Quota } from '../../../../../src/base/quota.ts';
import { Disk } from '../../../../../src/daemon/extensions/lasting-output/disk.ts';
import { LastingOutput } from '../../../../../src/daemon/extensions/lasting-output/lasting-output.ts';
import { OutputPlaces } from '../../../../../src/daemon/extensions/lasting-output/output-places.ts';
import { newState } from '../../../../../src/daemon/extensions/lasting-output/state.ts';
import { OpenFile } from '../../../../../src/daemon/linux/files/open-file.ts';
import { QUICK } from '../../../../../src/daemon/linux/lanes/lane.ts';
import { Lanes } from '../../../../../src/daemon/linux/lanes/lanes.ts';
import { WriteGate } from '../../../../../src/daemon/services/pause/write-gate.ts';
import { ManagedProcess } from '../../../../../src/daemon/services/process/lifecycle/process.ts';
import { History } from '../../../../../src/daemon/services/process/output/history.ts';
import { Output } from '../../../../../src/daemon/services/process/output/output.ts';
import { OutputStore } from '../../../../../src/daemon/services/process/output/output-store.ts';
import { RecordStore } from '../../../../../src/daemon/services/records/record-store.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { until } from '../../../../support/until.ts';

const KIB = 1024;
const PIECE = 64 * KIB;
const PID = 7;
const lanes = new Lanes({ limitMs: 10_000, threads: 4 });

class FullFile extends OpenFile {
  isFull = true;
  refused = 0;

  override async writev(batch: readonly Buffer[], position: number): Promise<number> {
    if (!this.isFull) return super.writev(batch, position);
    this.refused += 1;
    throw Object.assign(new Error('ENOSPC'), { code: 'ENOSPC', syscall: 'write' });
  }
}

/** A process whose output is kept on a disk that is full, with a client that reads all of it at once. */
function setUp() {
  const file = new FullFile(openSync(join(scratch(), 'file'), 'w+'), lanes, QUICK);
  const shared = { unread: new Quota(64 * 1024 * KIB), written: { stdout: 0, stderr: 0, pty: 0 } };
  const output = new Output(new History(new OutputStore(1024 * KIB)), shared);
  const writer = { isPaused: false };
  output.attach({
    setPaused: (paused) => {
      writer.isPaused = paused;
    },
  });
  const { promise: ended } = Promise.withResolvers<never>();
  const members = { pid: PID, tag: null, output, ended, isExiting: false };
  const process: ManagedProcess = Object.create(
    ManagedProcess.prototype,
    Object.getOwnPropertyDescriptors(members),
  );
  const place = new OutputPlaces(new RecordStore(null, {}, () => {}), 1).take();
  if (!place) throw new Error('no place');
  const terms = { bytes: 16 * 1024 * KIB, seconds: 1, dropsWhenFull: false };
  const kept = new LastingOutput(newState(terms, true), file, new Disk(null, lanes, new WriteGate()), place);
  onTestFinished(() => kept.forget());
  const client = output.read(PID, null);
  /** All bytes tell their offsets. */
  const write = async (pieces: number) => {
    for (let piece = 0; piece < pieces; piece++) {
      const offset = output.totals.pty;
      output.write('pty', Buffer.alloc(PIECE, offset / PIECE));
      for (let taken = 0; taken < PIECE; )
        for (const event of (await client.next()) ?? [])
          if (event.type === 'output') taken += event.bytes.length;
    }
  };
  return { file, output, writer, kept, process, client, write };
}

test('on a full disk a process waits 30 s for the disk while a client waits; what is missed then is counted', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  onTestFinished(() => void vi.useRealTimers());
  const { file, output, writer, kept, process, write } = setUp();
  const keeping = kept.keep(process);
  for (let pieces = 0; pieces < 16 && !writer.isPaused; pieces++) await write(1);
  expect(writer.isPaused).toBe(true);
  const before = output.totals.pty;
  // What the process has written by then is less than what the daemon has after a kill.
  expect(before).toBeLessThan(768 * KIB);
  vi.advanceTimersByTime(29_999);
  expect(writer.isPaused).toBe(true);
  vi.advanceTimersByTime(1);
  expect(writer.isPaused).toBe(false);
  vi.useRealTimers();
  // The disk holds up nobody any more.
  await write(40);
  expect(writer.isPaused).toBe(false);
  await until('the disk was tried', () => file.refused > 0);
  file.isFull = false;
  await until('all is written', () => kept.rings.get('pty')?.to === before + 40 * PIECE);
  const [ring] = kept.rings.values();
  if (!ring) throw new Error('no ring');
  expect(ring.from).toBeGreaterThan(before);
  for (let at = ring.from; at < ring.to; ) {
    const read = await kept.read(ring, at, PIECE - (at % PIECE));
    expect(read?.every((byte) => byte === Math.floor(at / PIECE))).toBe(true);
    at += read?.length ?? Number.NaN;
  }
  output.end({ type: 'end' } as never);
  await keeping;
  expect(kept.state).toMatchObject({ isComplete: true, error: null });
});

test('on a full disk a process waits for as long as nobody else waits', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  onTestFinished(() => void vi.useRealTimers());
  const { output, writer, kept, process, client } = setUp();
  void kept.keep(process);
  client[Symbol.dispose]();
  for (let pieces = 0; pieces < 16 && !writer.isPaused; pieces++) output.write('pty', Buffer.alloc(PIECE));
  vi.advanceTimersByTime(3_600_000);
  expect(writer.isPaused).toBe(true);
});

test('output whose time is over before all was written does not seem to be whole', async () => {
  const { kept, process, write } = setUp();
  const keeping = kept.keep(process);
  await write(1);
  kept.forget();
  await keeping;
  expect(kept.state).toMatchObject({ isComplete: true, error: 'the output is not kept any longer' });
});

test('a client that has stalled gives way to the disk, which has all of it', async () => {
  const { file, output, writer, kept, process, client } = setUp();
  file.isFull = false;
  void kept.keep(process);
  while (!writer.isPaused) {
    output.write('pty', Buffer.alloc(PIECE));
    await until('the disk has it', () => kept.rings.get('pty')?.to === output.totals.pty);
  }
  // It has taken nothing of what it was sent.
  client.stalled();
  expect(() => client.next()).toThrow('it has taken nothing for 5 s while others wait');
  expect(writer.isPaused).toBe(false);
});
