import { readdirSync } from 'node:fs';
import { expect, test } from 'vitest';
import { fileWith } from '../../../../../src/daemon/linux/memory/shared-memory.ts';
import {
  checkState,
  readState,
  type Snapshot,
  writeState,
} from '../../../../../src/daemon/services/handover/state.ts';

const SETTINGS = {
  guest: {
    accessToken: 'é',
    defaultUser: 'root',
    defaultWorkdir: null,
    variables: { platform: {}, own: {}, defaults: {} },
  },
  initTimestamp: '1',
  volumes: [],
};
const OTHERS = { ...SETTINGS, listener: 7, watches: [], limits: { descriptors: 1024, core: -1 } };
const STARTING = [{ leaf: null, startId: 'lost' }];
const ROOM = { drains: [11], memory: 12, leaves: { count: 3, released: [] }, starting: STARTING };
const SNAPSHOT: Snapshot = {
  ...OTHERS,
  records: [{ name: 'envd-1', descriptor: 13 }],
  forwards: {
    address: '10.0.0.1',
    forwards: [{ port: 80, target: '127.0.0.1', owner: 0, descriptor: 14 } as never],
  },
  cgroupRoot: { path: '/sys/fs/cgroup/envd', lock: 15 },
  extensions: [{ extension: 'one', record: 'r', descriptors: [16, 17], state: { a: 1 } }],
  processes: { ...ROOM, processes: [] },
};

/** The numbers of descriptors stay as they are. */
const same = (descriptor: number) => descriptor;
const write = (state: Snapshot, mostBytes?: number) => writeState('1.0', state, same, mostBytes);

function stateFile(state: object): number {
  return fileWith([Buffer.from(JSON.stringify(state))]);
}

test('a state is read as it was written', () => {
  const { processes: _, ...others } = SNAPSHOT;
  const { processes, ...read } = readState(write(SNAPSHOT), same);
  expect(read).toMatchObject({ ...others, build: '1.0' });
  expect(processes).toMatchObject({ processes: [], drains: [11], leaves: { count: 3 }, inFlight: null });
  expect(processes.starting).toEqual(STARTING);
  expect([...processes.outputs.values()]).toEqual([12]);
});

test('every descriptor is copied for the next program but the listening socket, and taken over from the earlier one', () => {
  const state = { ...SNAPSHOT, processes: { ...ROOM, processes: [processWith(Buffer.alloc(0))] } };
  const all = ({ processes, ...read }: ReturnType<typeof readState>) => {
    const [process] = processes.processes;
    const [memory] = processes.outputs.values();
    const { stdin, stdout, stderr } = process?.ends ?? {};
    const others = [
      read.records[0]?.descriptor,
      read.forwards.forwards[0]?.descriptor,
      read.cgroupRoot?.lock,
      ...(read.extensions[0]?.descriptors ?? []),
    ];
    return [read.listener, ...processes.drains, memory, ...others, stdin, stdout, stderr, process?.pidfd];
  };
  const copied = readState(
    writeState('1.0', state, (descriptor) => descriptor + 100),
    (descriptor) => descriptor * 2,
  );
  expect(all(readState(write(state), same))).toEqual([7, 11, 12, 13, 14, 15, 16, 17, 1, 2, 3, 4]);
  expect(all(copied)).toEqual([7, 222, 224, 226, 228, 230, 232, 234, 202, 204, 206, 208]);
});

test('a newer state that this version can read is read, without the members that it does not know', () => {
  const file = stateFile({ ...SNAPSHOT, version: 9, readableBy: 1, build: '9.0', other: true });
  expect(readState(file, same)).toMatchObject({ listener: 7 });
});

test('a state that this version cannot read is refused', () => {
  expect(() => checkState(stateFile({ version: 9, readableBy: 9, build: '9.0' }))).toThrow(
    'the state of envd 9.0 has version 9: this program reads version 1',
  );
});

/** A process with that much input that has not been written. */
function processWith(unwritten: Buffer) {
  const config = { command: 'cat', args: ['é\n'], environment: {}, cwd: '/', digest: null };
  const ends = { stdin: 1, stdout: 2, stderr: 3, master: null, slave: null };
  const known = {
    pid: 7,
    config,
    tag: null,
    kind: 'pipes',
    ends,
    pidfd: 4,
    isChild: true,
    leaf: null,
  } as const;
  const past = { isInputClosed: false, isKilled: false, isExpired: false, exit: null, end: null, endedAt: 0 };
  const totals = { stdout: 1, stderr: 2, pty: 0 };
  return { ...known, ...past, unwritten, deadlineAt: null, totals, number: 1, startId: null, record: '9' };
}

test('processes, their input and the events of watches are read as they were written', () => {
  const inputs = [Buffer.alloc(0), Buffer.from('\n\0é'), Buffer.alloc(100_000, 7)];
  const events = Array.from({ length: 3000 }, (_, index) => ({
    ...{ type: 'create', name: `${index}`, path: `/watched/${index}`, movedFrom: null },
  })) as Snapshot['watches'][number]['events'];
  const watch = (id: string) => ({
    id,
    path: '/watched',
    options: { recursive: true, allowNetworkMounts: false },
  });
  const watches = [
    { ...watch('1'), events },
    { ...watch('2'), events: [] },
  ];
  const processes = inputs.map(processWith);
  const read = readState(write({ ...SNAPSHOT, watches, processes: { ...ROOM, processes } }), same);
  expect(read.watches).toEqual(watches);
  expect(read.processes.processes).toMatchObject(processes);
});

test('a state that is too large is refused, and leaves no file', () => {
  const files = () => readdirSync('/proc/self/fd').length;
  const before = files();
  // As one text it would be longer than V8 allows: 0.5 GiB.
  const process = processWith(Buffer.alloc(8_000_000));
  function* processes() {
    for (let made = 0; made < 1000; made += 1) yield process;
  }
  const state = { ...SNAPSHOT, processes: { ...ROOM, processes: processes() } };
  expect(() => write(state, 30_000_000)).toThrow(
    'cannot hand over: the state has more than 30000000 bytes: wait until processes have read their input',
  );
  expect(files()).toBe(before);
});
