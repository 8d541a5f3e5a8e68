import { expect, test } from 'vitest';
import { fileWith } from '../../../../../src/daemon/os/shared-memory.ts';
import {
  checkState,
  type Handover,
  readState,
  writeState,
} from '../../../../../src/daemon/services/handover/state.ts';

const HANDOVER: Handover = {
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
  return fileWith(Buffer.from(JSON.stringify(state)));
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
    'the state of envd 9.0 has version 9: this program reads version 1',
  ],
  [
    { version: 0, readableBy: 0, build: '0.1' },
    'the state of envd 0.1 has version 0: this program reads version 1',
  ],
])('%j is refused', (state, message) => {
  expect(() => checkState(stateFile(state))).toThrow(message);
});
