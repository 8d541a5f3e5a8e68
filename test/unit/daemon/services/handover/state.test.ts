import { readdirSync } from 'node:fs';
import { expect, test } from 'vitest';
import { fileWith } from '../../../../../src/daemon/linux/memory/shared-memory.ts';
import {
  checkState,
  type Handover,
  readState,
  writeState,
} from '../../../../../src/daemon/services/handover/state.ts';

const HANDOVER: Handover = {
  build: '1.0',
  listener: 7,
  guest: {
    accessToken: 'é',
    defaultUser: 'root',
    defaultWorkdir: null,
    variables: { platform: {}, own: {} },
  },
  initTimestamp: '1',
  volumes: [],
  watches: [],
  processes: { processes: [], leaves: { count: 3, released: [] }, drains: [], memory: null },
  limits: { descriptors: 1024, core: -1 },
};

function stateFile(state: object): number {
  return fileWith([Buffer.from(JSON.stringify(state))]);
}

test('a state is read as it was written', () => {
  expect(readState(writeState('1.0', HANDOVER))).toMatchObject(HANDOVER);
});

test('a newer state that this version can read is read, without the members that it does not know', () => {
  const file = stateFile({ ...HANDOVER, version: 9, readableBy: 1, build: '9.0', other: true });
  expect(readState(file)).toMatchObject({ listener: 7 });
});

test.each([
  [
    { version: 9, readableBy: 9, build: '9.0' },
    'the state of envd 9.0 has version 9: this program reads versions 1 to 2',
  ],
  [
    { version: 0, readableBy: 0, build: '0.1' },
    'the state of envd 0.1 has version 0: this program reads versions 1 to 2',
  ],
])('%j is refused', (state, message) => {
  expect(() => checkState(stateFile(state))).toThrow(message);
});

/** A process with that much input that has not been written. */
function processWith(unwritten: Buffer): Handover['processes']['processes'][number] {
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
  })) as Handover['watches'][number]['events'];
  const watch = (id: string) => ({
    id,
    path: '/watched',
    options: { recursive: true, allowNetworkMounts: false },
  });
  const state: Handover = {
    ...HANDOVER,
    watches: [
      { ...watch('1'), events },
      { ...watch('2'), events: [] },
    ],
    processes: { ...HANDOVER.processes, processes: inputs.map(processWith) },
  };
  expect(readState(writeState('1.0', state))).toMatchObject(state);
});

test('a state of an earlier version, which is one line, is read', () => {
  const process = { ...processWith(Buffer.alloc(0)), unwritten: Buffer.from('input').toString('base64') };
  const events = [{ type: 'rescan', name: '.', path: '/', movedFrom: null }];
  const watches = [{ id: '1', path: '/', options: { recursive: false, allowNetworkMounts: false }, events }];
  const processes = { ...HANDOVER.processes, processes: [process] };
  const file = stateFile({ ...HANDOVER, version: 1, readableBy: 1, watches, processes });
  const state = readState(file);
  expect(state.watches).toEqual(watches);
  expect(state.processes.processes.map(({ unwritten }) => String(unwritten))).toEqual(['input']);
});

test('a state that is too large is refused, and leaves no file', () => {
  const files = () => readdirSync('/proc/self/fd').length;
  const before = files();
  // As one text it would be longer than V8 allows: 0.5 GiB.
  const process = processWith(Buffer.alloc(8_000_000));
  function* processes() {
    for (let made = 0; made < 1000; made += 1) yield process;
  }
  const state = { ...HANDOVER, processes: { ...HANDOVER.processes, processes: processes() } };
  expect(() => writeState('1.0', state, 30_000_000)).toThrow(
    'cannot hand over: the state has more than 30000000 bytes: wait until processes have read their input',
  );
  expect(files()).toBe(before);
});
