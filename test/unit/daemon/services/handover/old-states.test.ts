import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createMemory, fileWith } from '../../../../../src/daemon/linux/memory/shared-memory.ts';
import { recover } from '../../../../../src/daemon/services/handover/recovery.ts';
import { readState } from '../../../../../src/daemon/services/handover/state.ts';
import { RecordStore } from '../../../../../src/daemon/services/records/record-store.ts';
import { scratch } from '../../../../support/machine/scratch.ts';

/*
 * What earlier versions have left, as they have written it: these literals are not made by today's code, and stay as they are
 * as long as this program says that it reads the version.
 */

const SETTINGS = {
  guest: {
    accessToken: 'secret',
    defaultUser: 'ada',
    defaultWorkdir: null,
    variables: { platform: {}, own: {}, defaults: {} },
  },
  initTimestamp: '5',
  volumes: [],
};
const WATCH = { id: '1', path: '/', options: { recursive: false, allowNetworkMounts: false } };
const RESCAN = { type: 'rescan', name: '.', path: '/', movedFrom: null };
const NO_ENDS = { stdin: null, stdout: null, stderr: null, master: null, slave: null };
const CONFIG = { command: 'cat', args: [], environment: {}, cwd: '/' };
const ALL = {
  ...{ tag: 'job', kind: 'pipes', leaf: '/sys/fs/cgroup/envd/user/7-1', deadlineAt: null },
  ...{ totals: { stdout: 1, stderr: 2, pty: 0 }, number: 1, isInputClosed: false, isKilled: false },
  ...{ isExpired: false, exit: null, end: null, endedAt: 0, startId: 'one' },
};
const EXIT = { code: 0, signal: null, userMicros: 1, systemMicros: 2 };
const END = {
  ...{ type: 'end', exitCode: 0, exited: true, status: 'exit status 0', error: null, reason: 'exited' },
  ...{ signal: null, usage: { userMicros: 1, systemMicros: 2, peakMemoryBytes: null } },
};
const RUNNING = { pid: 7, unwritten: Buffer.from('input').toString('base64') };
const ENDED = { pid: 8, unwritten: '', ...{ exit: EXIT, end: END, endedAt: 9, startId: null, leaf: null } };
const ROOM = { leaves: { count: 3, released: ['/sys/fs/cgroup/envd/user/7-0'] }, drains: [14], memory: 15 };

/** The state that this program makes of the lines, with its numbers of descriptors for those of the earlier program. */
function read(...lines: readonly object[]) {
  const file = fileWith(lines.map((line) => Buffer.from(`${JSON.stringify(line)}\n`)));
  return readState(file, (descriptor) => descriptor + 100);
}

test('a state of version 1: a line for each process and watch', () => {
  const config = { ...CONFIG, digest: null };
  const common = { ...ALL, config, isChild: true };
  const ends = { ...NO_ENDS, stdin: 20, stdout: 21, stderr: 22 };
  const state = read(
    {
      ...{ version: 1, readableBy: 1, build: '1.0', ...SETTINGS, listener: 5 },
      ...{ limits: { descriptors: 1024, core: -1 }, processes: { ...ROOM, starting: [] } },
      records: [{ name: 'envd-1', descriptor: 16 }],
      forwards: { address: '10.0.0.1', forwards: [{ port: 80, descriptor: 17 }] },
      cgroupRoot: { path: '/sys/fs/cgroup/envd', lock: 18 },
    },
    { process: { ...common, ...RUNNING, ends, pidfd: 23, record: '1' } },
    { process: { ...common, ...ENDED, ends: { ...NO_ENDS, stdout: 24 }, pidfd: null, record: '2' } },
    { watch: { ...WATCH, events: [] } },
    { events: [RESCAN, RESCAN] },
  );
  expect(state).toMatchObject({ ...SETTINGS, build: '1.0', listener: 5 });
  expect(state.watches).toEqual([{ ...WATCH, events: [RESCAN, RESCAN] }]);
  expect(state.records).toEqual([{ name: 'envd-1', descriptor: 116 }]);
  expect(state.forwards).toEqual({ address: '10.0.0.1', forwards: [{ port: 80, descriptor: 117 }] });
  expect(state.cgroupRoot).toEqual({ path: '/sys/fs/cgroup/envd', lock: 118 });
  expect(state.extensions).toEqual([]);
  expect(state.processes.processes).toMatchObject([
    {
      ...{ pid: 7, pidfd: 123, record: '1', config, startId: 'one', unwritten: Buffer.from('input') },
      ends: { ...NO_ENDS, stdin: 120, stdout: 121, stderr: 122 },
    },
    { pid: 8, pidfd: null, record: '2', ends: { ...NO_ENDS, stdout: 124 }, exit: EXIT, end: END, endedAt: 9 },
  ]);
  expect(state.processes).toMatchObject({ drains: [114], leaves: { count: 3 } });
  expect([...state.processes.outputs.values()]).toEqual([115]);
});

test('records of version 1; one that says that this program cannot read it stays, and says so', () => {
  const store = (writer: object) => new RecordStore(join(scratch(), 'nobody'), writer, () => {});
  const descriptor = createMemory(16).descriptor ?? -1;
  const config = { ...CONFIG, digest: null };
  const [known, unknown] = [1, 9].map((version) => {
    const earlier = store({ version, readableBy: version, build: `${version}.0` });
    const output = earlier.record();
    output.set({ about: 'output' }, { memory: descriptor });
    const process = { ...ALL, ...RUNNING, config, isChild: true, about: 'process', output: output.key };
    earlier.record('of 7').set(process, { stdout: descriptor, pidfd: descriptor });
    earlier.record().set({ about: 'starting', leaf: '/sys/fs/cgroup/envd/user/7-2', startId: null });
    earlier.record().set({ about: 'settings', ...SETTINGS });
    const next = store({});
    return { ...recover(next, earlier.queues), output: output.key, next };
  });
  expect(known).toMatchObject({ settings: SETTINGS, refused: [] });
  expect(known?.processes.starting).toMatchObject([{ leaf: '/sys/fs/cgroup/envd/user/7-2', startId: null }]);
  expect([...(known?.processes.outputs.keys() ?? [])]).toEqual([known?.output]);
  const [process] = known?.processes.processes ?? [];
  const ends = { ...NO_ENDS, stdout: expect.any(Number) };
  const named = { pid: 7, startId: 'one', isChild: false, record: 'of 7', output: known?.output };
  expect(process).toMatchObject({ ...named, config, ends, pidfd: expect.any(Number) });
  expect(unknown).toMatchObject({ settings: null, processes: { processes: [] } });
  const reason = 'the state of envd 9.0 has version 9: this program reads version 1';
  expect(unknown?.refused).toEqual(Array(4).fill(reason));
  unknown?.forget();
  expect(recover(store({}), unknown?.next.queues ?? []).refused).toEqual(Array(4).fill(reason));
});
