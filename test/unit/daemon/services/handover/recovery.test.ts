import { readdirSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { recover, SettingsRecord } from '../../../../../src/daemon/services/handover/recovery.ts';
import { headOf, type Settings } from '../../../../../src/daemon/services/handover/state.ts';
import { RecordStore } from '../../../../../src/daemon/services/records/record-store.ts';
import { scratch } from '../../../../support/machine/scratch.ts';

const SETTINGS: Omit<Settings, 'initTimestamp'> = {
  guest: {
    accessToken: 'secret',
    defaultUser: 'root',
    defaultWorkdir: null,
    variables: { platform: { A: '1' }, own: {}, defaults: {} },
  },
  volumes: [],
};

/** A store whose service manager does not answer; its queues are in this process. */
function newStore(): RecordStore {
  return new RecordStore(join(scratch(), 'nobody'), headOf('test'), () => {});
}

const settingsIn = (store: RecordStore) => recover(newStore(), store.queues).settings;

test('the settings and the time of the last /init are found; a time alone replaces no record', () => {
  const store = newStore();
  const record = new SettingsRecord(store);
  const put = vi.spyOn(store, 'put');
  record.set(SETTINGS, null);
  record.set(SETTINGS, 1_769_860_800_123_456_789n);
  expect(put).toHaveBeenCalledTimes(1);
  expect(settingsIn(store)).toMatchObject({ ...SETTINGS, initTimestamp: '1769860800123456789' });
});

test.each([
  ['none', null, null],
  ['before 1970', -1n, '-1'],
  // RFC 3339 has the years from 0 to 9999, 64 bits those from 1677 to 2262.
  ['far ago', -62_135_596_800_000_000_000n, null],
  ['far ahead', 253_402_300_799_000_000_000n, '9223372036854775807'],
])('a time: %s', (_name, time, found) => {
  const store = newStore();
  new SettingsRecord(store).set(SETTINGS, time);
  expect(settingsIn(store)?.initTimestamp).toBe(found);
});

test('settings of a program that kept the time within them are read', () => {
  const store = newStore();
  store.record().set({ about: 'settings', initTimestamp: '5', ...SETTINGS });
  expect(settingsIn(store)).toMatchObject({ ...SETTINGS, initTimestamp: '5' });
});

test('a recovery leaves no descriptor of the time', () => {
  const store = newStore();
  new SettingsRecord(store).set(SETTINGS, 1n);
  const before = filesInMemory();
  expect(settingsIn(store)?.initTimestamp).toBe('1');
  expect(filesInMemory()).toBe(before);
});

function filesInMemory(): number {
  const links = readdirSync('/proc/self/fd').map((name) => {
    try {
      return readlinkSync(`/proc/self/fd/${name}`);
    } catch {
      return '';
    }
  });
  return links.filter((link) => link.startsWith('/memfd:')).length;
}
