import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import {
  closeSync,
  constants,
  fstatSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  writeSync,
} from 'node:fs';
import { open as openFile } from 'node:fs/promises';
import { setImmediate as turn } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { describe, expect, onTestFinished, test } from 'vitest';
import { PipePoller, type ReadEnd } from '../../../../../src/daemon/linux/processes/pipe-ends.ts';
import { Terminal, type TerminalSize } from '../../../../../src/daemon/linux/processes/pty.ts';
import { spawn } from '../../../../../src/daemon/linux/processes/spawn.ts';
import { ADA, ROOT } from '../../../../support/machine/users.ts';

/** What is read at most when a process has ended. */
const DRAIN_BYTES = 64 * 1024;
const LAUNCH = { environment: {}, cwd: '/', user: ROOT, cgroup: null, limitMs: 10_000 };
const SIZE = { cols: 80, rows: 24 };
const poller = new PipePoller();

function open(size: TerminalSize = SIZE, owner = ROOT, onBytes = (_bytes: Buffer) => {}): Terminal {
  const terminal = Terminal.open(size, owner, (master) => poller.read(master, onBytes));
  onTestFinished(() => terminal[Symbol.dispose]());
  return terminal;
}

const sizeOf = (terminal: Terminal) =>
  String(execFileSync('stty', ['-F', readlinkSync(`/proc/self/fd/${terminal.slave}`), 'size'])).trim();

describe('size', () => {
  test('is the requested one, and changes with resize', () => {
    const terminal = open({ cols: 132, rows: 43 });
    expect(sizeOf(terminal)).toBe('43 132');
    terminal.resize({ cols: 65_535, rows: 1 });
    expect(sizeOf(terminal)).toBe('1 65535');
  });

  test.each([
    { cols: 0, rows: 24 },
    { cols: 80, rows: 65_536 },
    { cols: -1, rows: 24 },
  ])('%o is refused', (size) => {
    const refusal = expect.objectContaining({
      kind: 'invalid_argument',
      message: `terminal size must be 1 to 65535 cells each way, not ${size.cols}x${size.rows}`,
    });
    expect(() => open(size)).toThrow(refusal);
    const terminal = open();
    expect(() => terminal.resize(size)).toThrow(refusal);
    expect(sizeOf(terminal)).toBe('24 80');
  });
});

describe('a distortion', () => {
  const undo = (distortion: Disposable | null) => distortion?.[Symbol.dispose]();

  test.each([
    [{ cols: 80, rows: 24 }, '23 80'],
    [{ cols: 80, rows: 1 }, '2 80'],
  ])('of %o is another size, until it is undone', (size, other) => {
    const terminal = open(size);
    const distortion = terminal.distort();
    expect([sizeOf(terminal), terminal.size]).toEqual([other, size]);
    expect(terminal.distort()).toBeNull();
    undo(distortion);
    expect(sizeOf(terminal)).toBe(`${size.rows} ${size.cols}`);
    expect(terminal.distort()).not.toBeNull();
  });

  test('is not undone when another size was set', () => {
    const terminal = open();
    const distortion = terminal.distort();
    terminal.resize({ cols: 80, rows: 23 });
    undo(distortion);
    expect([sizeOf(terminal), terminal.size]).toEqual(['23 80', { cols: 80, rows: 23 }]);
  });

  test('goes on when an earlier one is undone, which another size has ended', () => {
    const terminal = open();
    const first = terminal.distort();
    terminal.resize({ cols: 80, rows: 30 });
    const second = terminal.distort();
    undo(first);
    expect(sizeOf(terminal)).toBe('29 80');
    undo(second);
    expect(sizeOf(terminal)).toBe('30 80');
  });

  test('goes on when the size is set that it has anyway', () => {
    const terminal = open();
    const distortion = terminal.distort();
    terminal.resize({ ...SIZE });
    expect(sizeOf(terminal)).toBe('23 80');
    undo(distortion);
    expect(sizeOf(terminal)).toBe('24 80');
    terminal.resize({ ...SIZE });
    expect(sizeOf(terminal)).toBe('24 80');
  });

  test('is none of a terminal that was closed meanwhile', () => {
    const terminal = open();
    const distortion = terminal.distort();
    terminal[Symbol.dispose]();
    undo(distortion);
    expect(terminal.distort()).toBeNull();
  });
});

test('the slave belongs to the user, with the mode of a login terminal', () => {
  const { slave } = open(undefined, ADA);
  expect(fstatSync(slave)).toMatchObject({ uid: ADA.uid, mode: constants.S_IFCHR | 0o620 });
});

test('the slave is in blocking mode, as programs expect', () => {
  const { slave } = open();
  const flags = /^flags:\s+([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${slave}`, 'utf8'))?.[1] ?? '';
  expect(Number.parseInt(flags, 8) & 0o4000).toBe(0);
});

describe('drain', () => {
  test('reads all bytes written so far, also those that are not yet read', async () => {
    const chunks: Buffer[] = [];
    const read = Promise.withResolvers<void>();
    const terminal = open(SIZE, ROOT, (bytes) => {
      chunks.push(bytes);
      read.resolve();
    });
    const lines = Array.from({ length: 300 }, (_, index) => `line ${index}\n`);
    for (const [index, line] of lines.entries()) {
      writeSync(terminal.slave, line);
      // One part has been read before the rest is drained.
      if (index === 100) await read.promise;
      if (index === 200) await turn();
    }
    terminal.drain();
    expect(String(Buffer.concat(chunks))).toBe(lines.join('').replaceAll('\n', '\r\n'));
  });

  test('reads all that a terminal holds, although it is paused again and again', () => {
    let read = 0;
    const terminal = open(SIZE, ROOT, (bytes) => {
      read += bytes.length;
      terminal.setPaused(true);
    });
    terminal.setPaused(true);
    const path = readlinkSync(`/proc/self/fd/${terminal.slave}`);
    const slave = openSync(path, constants.O_WRONLY | constants.O_NOCTTY | constants.O_NONBLOCK);
    onTestFinished(() => closeSync(slave));
    let written = 0;
    const fill = () => {
      for (;;) written += writeSync(slave, 'x'.repeat(1000));
    };
    expect(fill).toThrow(expect.objectContaining({ code: 'EAGAIN' }));
    terminal.drain();
    expect(read).toBe(written);
    expect(written).toBeGreaterThan(8192);
  });

  test('ends, although others go on writing', () => {
    let read = 0;
    const terminal = open(SIZE, ROOT, (bytes) => {
      read += bytes.length;
      writeSync(terminal.slave, bytes);
    });
    makeRaw(terminal);
    writeSync(terminal.slave, 'x'.repeat(1000));
    terminal.drain();
    expect(read).toBeGreaterThanOrEqual(DRAIN_BYTES);
    expect(read).toBeLessThan(DRAIN_BYTES + 4096);
  });
});

/** Sets raw mode, so that bytes pass unchanged in both directions. */
function makeRaw(terminal: Terminal): void {
  const path = readlinkSync(`/proc/self/fd/${terminal.slave}`);
  execFileSync('stty', ['-F', path, 'raw', '-echo', 'min', '1']);
}

describe('input', () => {
  test('that is read late arrives whole and in order', async () => {
    const terminal = open();
    makeRaw(terminal);
    const wanted = randomBytes(1_000_000);
    for (const part of [wanted.subarray(0, 600_000), wanted.subarray(600_000)])
      expect(terminal.input.accept(part)).toBe(true);
    await turn();
    expect(terminal.input.unwritten.length).toBeGreaterThan(0);
    const got = Buffer.alloc(wanted.length);
    const reader = await openFile(`/proc/self/fd/${terminal.slave}`);
    for (let at = 0; at < got.length; ) at += (await reader.read(got, at)).bytesRead;
    await reader.close();
    expect(got.equals(wanted)).toBe(true);
    expect(terminal.input.unwritten.length).toBe(0);
  });

  test('that is not read is dropped when the terminal is closed, and no descriptor stays open', async () => {
    const before = descriptors();
    const terminal = open();
    makeRaw(terminal);
    terminal.input.accept(Buffer.alloc(1_000_000));
    await turn();
    terminal[Symbol.dispose]();
    await expect.poll(descriptors).toBeLessThanOrEqual(before);
  });

  test('that is pending when its worker ends leaves no descriptor open', async () => {
    const before = descriptors();
    const worker = new Worker(
      new URL('../../../../support/workers/full-terminal-worker.ts', import.meta.url),
    );
    await once(worker, 'message');
    await worker.terminate();
    await expect.poll(descriptors).toBeLessThanOrEqual(before);
  });
});

/** Of terminals. */
function descriptors(): number {
  const numbers = readdirSync('/proc/self/fd').filter((number) => {
    try {
      return /^\/dev\/(ptmx|pts\/)/.test(readlinkSync(`/proc/self/fd/${number}`));
    } catch {
      return false; // The directory itself.
    }
  });
  return numbers.length;
}

describe('closing', () => {
  test('closes the descriptors, and may be repeated', async () => {
    open()[Symbol.dispose]();
    const before = descriptors();
    const terminals = Array.from({ length: 20 }, () => open());
    expect(descriptors()).toBeGreaterThanOrEqual(40);
    for (const terminal of [...terminals, ...terminals]) terminal[Symbol.dispose]();
    await expect.poll(descriptors).toBeLessThanOrEqual(before);
  });

  test('sends SIGHUP to the processes of the terminal', async () => {
    const terminal = open();
    const started = await spawn({ ...LAUNCH, file: '/bin/sleep', args: ['sleep', '300'] }, terminal.slave);
    terminal[Symbol.dispose]();
    expect(await started.exit).toMatchObject({ code: null, signal: 1 });
  });

  test('follows when its output can be read no more, and its descriptors are not used again', async () => {
    const opened: ReadEnd[] = [];
    const terminal = Terminal.open(SIZE, ROOT, (master) => {
      const output = poller.read(master, () => {});
      opened.push(output);
      return output;
    });
    const { input } = terminal;
    // As when there is no memory to wait for it.
    for (const output of opened) output.close();
    await input.closed;
    expect(terminal.ends).toBeNull();
    expect(() => terminal.resize(SIZE)).toThrow('cannot resize: the terminal is closed');
    for (const fd of [terminal.slave, ...opened.map(({ descriptor }) => descriptor)])
      expect(() => fstatSync(fd)).toThrow('EBADF');
  });
});
