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
    variables: { platform: {}, own: {} },
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
const EXIT = { code: 0, signal: null, userMicros: 1, systemMicros: 2, maxRssKib: 3 };
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

test('a state of version 1: everything is in one line, with neither digests nor pidfds', () => {
  const running = { ...ALL, ...RUNNING, config: CONFIG, ends: { ...NO_ENDS, stdin: 20, stdout: 21 } };
  const state = read({
    ...{ version: 1, readableBy: 1, build: '0.9', ...SETTINGS, listener: 5 },
    ...{ limits: { descriptors: 1024, core: -1 }, watches: [{ ...WATCH, events: [RESCAN] }] },
    processes: { ...ROOM, processes: [running] },
  });
  expect(state).toMatchObject({ ...SETTINGS, build: '0.9', listener: 5, records: [], cgroupRoot: undefined });
  expect(state.forwards).toEqual({ address: null, forwards: [] });
  expect(state.watches).toEqual([{ ...WATCH, events: [RESCAN] }]);
  expect(state.processes).toMatchObject({ drains: [114], leaves: { count: 3 } });
  const [process] = state.processes.processes;
  expect(process).toMatchObject({ pid: 7, startId: 'one', pidfd: null, isChild: true, record: undefined });
  expect(process).toMatchObject({
    config: { ...CONFIG, digest: null },
    ends: { ...NO_ENDS, stdin: 120, stdout: 121 },
    unwritten: Buffer.from('input'),
  });
  expect(state.processes.outputs.get(process?.output ?? '')).toBe(115);
});

test('a state of version 2: a line for each process and watch', () => {
  const config = { ...CONFIG, digest: null };
  const common = { ...ALL, config, isChild: true };
  const ends = { ...NO_ENDS, stdin: 20, stdout: 21, stderr: 22 };
  const state = read(
    {
      ...{ version: 2, readableBy: 2, build: '1.0', ...SETTINGS, listener: 5 },
      ...{ limits: { descriptors: 1024, core: -1 }, watches: [], processes: { ...ROOM, processes: [] } },
      records: [{ name: 'envd-1', descriptor: 16 }],
      forwards: { address: '10.0.0.1', forwards: [{ port: 80, descriptor: 17 }] },
      cgroupRoot: { path: '/sys/fs/cgroup/envd', lock: 18 },
    },
    { process: { ...common, ...RUNNING, ends, pidfd: 23, record: '1' } },
    { process: { ...common, ...ENDED, ends: { ...NO_ENDS, stdout: 24 }, pidfd: null, record: '2' } },
    { watch: { ...WATCH, events: [] } },
    { events: [RESCAN, RESCAN] },
  );
  expect(state.watches).toEqual([{ ...WATCH, events: [RESCAN, RESCAN] }]);
  expect(state.records).toEqual([{ name: 'envd-1', descriptor: 116 }]);
  expect(state.forwards).toEqual({ address: '10.0.0.1', forwards: [{ port: 80, descriptor: 117 }] });
  expect(state.cgroupRoot).toEqual({ path: '/sys/fs/cgroup/envd', lock: 118 });
  expect(state.processes.processes).toMatchObject([
    { pid: 7, pidfd: 123, record: '1', ends: { ...NO_ENDS, stdin: 120, stdout: 121, stderr: 122 } },
    { pid: 8, pidfd: null, record: '2', ends: { ...NO_ENDS, stdout: 124 }, exit: EXIT, end: END, endedAt: 9 },
  ]);
});

test('records of versions 1 and 2; one that says that this program cannot read it stays, and says so', () => {
  const store = (writer: object) => new RecordStore(join(scratch(), 'nobody'), writer, () => {});
  const descriptor = createMemory(16).descriptor ?? -1;
  const found = [1, 2, 9].map((version) => {
    const earlier = store({ version, readableBy: version === 9 ? 9 : 1, build: `${version}.0` });
    const output = earlier.record();
    output.set({ about: 'output' }, { memory: descriptor });
    const config = version === 1 ? CONFIG : { ...CONFIG, digest: null };
    const process = { ...ALL, ...RUNNING, config, isChild: true, about: 'process', output: output.key };
    earlier.record('of 7').set(process, { stdout: descriptor, pidfd: descriptor });
    earlier.record().set({ about: 'starting', leaf: '/sys/fs/cgroup/envd/user/7-2' });
    earlier.record().set({ about: 'settings', ...SETTINGS });
    return { ...recover(store({}), earlier.queues), output: output.key };
  });
  for (const { settings, processes, refused, output } of found.slice(0, 2)) {
    expect(settings).toMatchObject(SETTINGS);
    expect(refused).toEqual([]);
    expect(processes.starting).toMatchObject([{ leaf: '/sys/fs/cgroup/envd/user/7-2', startId: null }]);
    expect([...processes.outputs.keys()]).toEqual([output]);
    const [process] = processes.processes;
    expect(process).toMatchObject({ pid: 7, startId: 'one', isChild: false, record: 'of 7', output });
    expect(process?.config).toEqual({ ...CONFIG, digest: null });
    expect(process?.ends).toMatchObject({ ...NO_ENDS, stdout: expect.any(Number) });
    expect(process?.pidfd).toEqual(expect.any(Number));
  }
  expect(found[2]).toMatchObject({ settings: null, processes: { processes: [] } });
  expect(found[2]?.refused).toContain(
    'the state of envd 9.0 has version 9: this program reads versions 1 to 2',
  );
});
