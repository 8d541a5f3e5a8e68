import { describe, expect, test } from 'vitest';
import {
  endedBetween,
  endHappening,
  type GuestSnapshot,
  happeningsBetween,
} from '../../../src/cli/console/page/state/guest-snapshot.ts';
import { FigureHistory } from '../../../src/cli/console/page/state/history.ts';
import { keptTabIn } from '../../../src/cli/console/page/terminals/kept-tab.ts';
import { CpuShares, openRows, treeOf } from '../../../src/cli/console/page/views/process-tree.ts';
import {
  base64Of,
  bytesOfBase64,
  EnvelopeReader,
  enveloped,
} from '../../../src/cli/console/page/wire/envelopes.ts';
import { partsOfFragment } from '../../../src/cli/console/page/wire/fragment.ts';
import { StreamLanes } from '../../../src/cli/console/page/wire/lanes.ts';
import type { ProcessMessage } from '../../../src/cli/console/page/wire/messages.ts';
import { fragmentOf, NOWHERE, placeOf, saysMore } from '../../../src/cli/console/page/workspace/place.ts';

const named = (pid: number, parent?: number, cmd = `p${pid}`): ProcessMessage => ({
  pid,
  config: { cmd },
  ...(parent !== undefined && { parent }),
});

describe('the tree of processes', () => {
  const rows = (processes: readonly ProcessMessage[], filter = '') =>
    treeOf(processes, new Set([2]), new Map([[2, 50]]), filter).map(({ process, depth }) => [
      process.pid,
      depth,
    ]);

  test('has children below their parents', () => {
    expect(rows([named(1, 0), named(2, 1), named(3, 2), named(4, 1), named(9, 77)])).toEqual([
      ...[
        [1, 0],
        [2, 1],
        [3, 2],
        [4, 1],
        [9, 0],
      ],
    ]);
  });

  test('has each process once, whatever a daemon says of parents', () => {
    expect(rows([named(1, 1), named(2, 1), named(2, 1)])).toEqual([
      [1, 0],
      [2, 1],
    ]);
    expect(rows([named(5, 6), named(6, 5)])).toEqual([
      [5, 0],
      [6, 1],
    ]);
  });

  test('leaves out what is below a process that is closed', () => {
    const tree = treeOf([named(1, 0), named(2, 1), named(3, 2), named(4, 1)], new Set(), new Map(), '');
    const shown = (closed: readonly number[]) =>
      openRows(tree, new Set(closed)).map(({ process, isOpen }) => [process.pid, isOpen]);
    expect(shown([])).toEqual([
      ...[
        [1, true],
        [2, true],
      ],
      ...[
        [3, null],
        [4, null],
      ],
    ]);
    expect(shown([2, 3])).toEqual([
      ...[
        [1, true],
        [2, false],
      ],
      [4, null],
    ]);
    expect(shown([1, 2])).toEqual([[1, false]]);
  });

  test('shows those that match alone, and which ones clients have started', () => {
    expect(rows([named(1, 0, 'init'), named(2, 1, 'Roses')], 'rose')).toEqual([[2, 0]]);
    const [row] = treeOf([named(2)], new Set([2]), new Map([[2, 50]]), '');
    expect(row).toMatchObject({ isOfClient: true, cpuPercent: 50 });
  });

  test('has the share of a CPU from two sums of CPU time', () => {
    const shares = new CpuShares();
    const used = (micros: number) => [{ ...named(1), usage: { userMicros: String(micros) } }];
    expect(shares.read(used(1000)).size).toBe(0);
    expect(shares.read(used(1_000_000)).get(1)).toBeGreaterThan(0);
    // Another process with the same pid has used less.
    expect(shares.read(used(10)).size).toBe(0);
  });
});

describe('what has happened between two looks', () => {
  const state = (change: Partial<GuestSnapshot> = {}): GuestSnapshot => ({
    ...{ reach: 'reachable', message: '', health: null, metrics: null, processes: [] },
    ...{ ports: null, listeners: null },
    ...change,
  });
  const texts = (before: GuestSnapshot, now: GuestSnapshot) =>
    happeningsBetween(before, now).map(({ text }) => text);

  test('nothing at the first look', () => {
    expect(texts(state({ reach: 'connecting' }), state({ processes: [named(1)] }))).toEqual([]);
  });

  test('starts and ends', () => {
    const [before, now] = [state({ processes: [named(1)] }), state({ processes: [named(2)] })];
    expect(texts(before, now)).toEqual(['p2 (2) was started']);
    expect(endedBetween(before, now)).toEqual([named(1)]);
    // One that cannot be reached has not ended its processes.
    expect(endedBetween(before, state({ reach: 'lost' }))).toEqual([]);
  });

  test.each([
    [
      { exitCode: 3, status: 'exit status 3', reason: 'END_REASON_EXITED' },
      'end',
      'has ended: exit status 3',
    ],
    [{ reason: 'END_REASON_OUT_OF_MEMORY' }, 'limit', 'was killed because memory ran out'],
    [{ reason: 'END_REASON_DEADLINE' }, 'limit', 'was killed at its time limit'],
    [null, 'end', 'has ended'],
  ] as const)('an end: %j', (end, kind, text) => {
    const told = endHappening(named(7), end);
    expect([told.kind, told.text]).toEqual([kind, `p7 (7) ${text}`]);
  });

  test('freezes, ports, and a daemon that goes and comes', () => {
    const frozen = (workload: boolean) => state({ health: { frozen: { workload, filesystem: false } } });
    expect(texts(frozen(false), frozen(true))).toEqual(['the workload is frozen']);
    expect(texts(frozen(true), frozen(false))).toEqual(['the workload runs again']);
    const listening = (...ports: number[]) =>
      state({ ports: { address: '10.0.0.1', ports: ports.map((port) => ({ port })) } });
    expect(happeningsBetween(listening(1, 2), listening(2, 3))).toEqual([
      { kind: 'port', text: 'a server listens at port 3', port: 3 },
      { kind: 'port', text: 'port 1 has gone' },
    ]);
    const served = (...ports: number[]) =>
      state({ listeners: ports.map((port) => ({ port, address: '*', pid: 7, command: 'vite' })) });
    expect(texts(served(1, 2), served(2, 3))).toEqual(['vite listens at port 3', 'port 1 has gone']);
    expect(texts(state(), served(1))).toEqual([]);
    const since = (time: string, version = '1') => state({ health: { since: time, version } });
    expect(texts(since('a'), since('b', '2'))).toEqual(['the daemon was started anew: envd 2 in place of 1']);
    expect(texts(state(), state({ reach: 'lost', message: 'no answer' }))).toEqual([
      'the daemon does not answer: no answer',
    ]);
    expect(texts(state({ reach: 'lost' }), state())).toEqual(['the daemon answers again']);
  });
});

test('figures are kept for an hour', () => {
  const history = new FigureHistory();
  for (let second = 0; second <= 7200; second += 2) history.add(second, { cpu_used_pct: second }, 1);
  expect([history.times[0], history.times.at(-1), history.times.length]).toEqual([3600, 7200, 1801]);
  expect(history.figures.cpu[0]).toBe(3600);
});

test('figures that the daemon has kept fill what the page has not seen, and gaps stay gaps', () => {
  const history = new FigureHistory();
  const point = (ts: number) => ({ ts, cpu_used_pct: ts, io_pressure: null });
  history.add(5000, { cpu_used_pct: 1 }, 3);
  history.add(5002, null, null);
  // The clock of the guest is ten minutes ahead; nothing is known between 4500 and 4900.
  const points = [1000, 4490, 4500, 4900, 4910, 4995, 5001, 9000].map((time) => point(time + 600));
  history.fill(5002, points, 600);
  const cpu = () => history.times.map((time, index) => [time, history.figures.cpu[index]]);
  expect(cpu()).toEqual([
    [4490, 5090],
    [4500, 5100],
    [4510, null],
    [4900, 5500],
    [4910, 5510],
    [4920, null],
    [5000, 1],
  ]);
  expect(history.figures.stallIo.every((value) => value === null)).toBe(true);
  expect(history.figures.processes.at(-1)).toBe(3);
  // A page that was asleep has a gap, too, until the daemon is asked again.
  history.add(5100, { cpu_used_pct: 2 }, 3);
  expect(cpu().slice(-3)).toEqual([
    [5000, 1],
    [5010, null],
    [5100, 2],
  ]);
  history.fill(5100, [point(5050)], 0);
  expect(cpu().slice(-5)).toEqual([
    [5000, 1],
    [5010, null],
    [5050, 5050],
    [5060, null],
    [5100, 2],
  ]);
});

describe('a place in the fragment of the address', () => {
  const place = {
    ...{ sandbox: 'a/b?c', view: 'Files' as const, path: '/home/é #&?=%', file: '/x\n<script>', pid: null },
  };

  test('is read as it was written, whatever its names are', () => {
    for (const each of [place, NOWHERE, { ...NOWHERE, view: 'Terminals' as const, pid: 7 }])
      expect(placeOf(`#${fragmentOf(each)}`)).toEqual(each);
    expect(fragmentOf(place)).toMatch(/^\/Files\?[\w.%&=+*-]+$/);
  });

  test.each([
    '',
    '#',
    '#/',
    '#/Nothing',
    '#/Files/x',
    '#//',
    '#/constructor',
    '#/?pid=x',
    '#/?pid=-1',
    '#/?pid=1e99',
  ])('%j is nowhere', (fragment) => {
    expect(placeOf(fragment)).toEqual(NOWHERE);
  });

  test('is behind the secret', () => {
    expect(partsOfFragment('#s-e_cret')).toEqual({ secret: 's-e_cret', place: '' });
    expect(partsOfFragment('#s/Files?path=%2F')).toEqual({ secret: 's', place: '/Files?path=%2F' });
    expect(partsOfFragment('#/Files')).toEqual({ secret: '', place: '/Files' });
    expect(partsOfFragment('')).toEqual({ secret: '', place: '' });
  });

  test('replaces one of which it says more, and no other one', () => {
    expect(saysMore(place, { ...place, path: '' })).toBe(true);
    expect(saysMore(place, { ...place, path: '/' })).toBe(false);
    expect(saysMore(place, { ...place, file: null })).toBe(false);
    expect(saysMore(place, { ...place, view: 'Events' })).toBe(false);
    expect(saysMore(place, { ...place, sandbox: 'other' })).toBe(false);
  });
});

test.each([null, 7, 'x', [], {}, { pid: '7', title: 'x' }, { pid: 7 }])(
  '%j is no tab that was kept',
  (value) => {
    expect(keptTabIn(value)).toBeNull();
  },
);

test('a tab that was kept has nothing that it cannot have', () => {
  const value = {
    ...{
      pid: 7,
      title: 'x',
      size: { cols: 1e9, rows: 'x' },
      offsets: { pty: -1, stdout: 5 },
      start: { user: 1 },
    },
  };
  expect(keptTabIn(value)).toEqual({
    ...{ pid: 7, title: 'x', name: null, hasEnded: false, hasTerminal: false, start: null },
    size: { cols: 1000, rows: 24 },
    offsets: { stdout: 5, stderr: 0, pty: 0 },
  });
});

describe('envelopes', () => {
  test('are read however their bytes arrive', () => {
    const bytes = Buffer.concat([
      enveloped({ a: 1 }),
      enveloped({ text: 'é'.repeat(1000) }),
      Buffer.from([2, 0, 0, 0, 2, 123, 125]),
    ]);
    for (const step of [1, 2, 3, 7, 1000, bytes.length]) {
      const reader = new EnvelopeReader();
      const found: unknown[] = [];
      for (let at = 0; at < bytes.length; at += step)
        for (const { isEnd, text } of reader.read(bytes.subarray(at, at + step)))
          found.push([isEnd, JSON.parse(text)]);
      expect(found).toEqual([
        [false, { a: 1 }],
        [false, { text: 'é'.repeat(1000) }],
        [true, {}],
      ]);
    }
  });

  test('that would be too long are refused before they are kept', () => {
    expect(() => [...new EnvelopeReader().read(Uint8Array.of(0, 255, 255, 255, 255))]).toThrow('too long');
  });

  test('have bytes as base64', () => {
    const bytes = Uint8Array.from({ length: 256 }, (_, index) => index);
    expect(bytesOfBase64(base64Of(bytes))).toEqual(bytes);
  });
});

test('streams are spread over ports, up to a number', () => {
  const lanes = new StreamLanes(['a', 'b']);
  const taken = Array.from({ length: 8 }, () => lanes.take());
  expect(taken.filter((origin) => origin === 'a')).toHaveLength(4);
  expect(() => lanes.take()).toThrow('too many terminals');
  lanes.giveBack('b');
  expect(lanes.take()).toBe('b');
});
