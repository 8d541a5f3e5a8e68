import { closeSync, openSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { getAttributeSync, setAttributeSync } from 'fs-xattr';
import { describe, expect, onTestFinished, test } from 'vitest';
import { Attributes } from '../../../../../src/daemon/linux/files/xattr.ts';
import { mountFuse, serverOf } from '../../../../support/machine/mounts.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { quickFile } from '../../../../support/services/lanes.ts';

function openNew(directory: string): { path: string; descriptor: number } {
  const path = join(directory, 'file');
  writeFileSync(path, '');
  const descriptor = openSync(path, 'r+');
  onTestFinished(() => closeSync(descriptor));
  return { path, descriptor };
}

const places = { 'on a local file system': scratch, 'on a network mount': () => mountFuse()[0] };

describe.each(Object.entries(places))('attributes %s', (_, place) => {
  test('are set, read by their prefix, and removed', async () => {
    const { path, descriptor } = openNew(place());
    setAttributeSync(path, 'user.other', 'theirs');
    setAttributeSync(path, 'user.x.binary', Buffer.from([0, 0xff]));
    const attributes = new Attributes(quickFile(descriptor));
    expect(await attributes.set('user.x.empty', Buffer.alloc(0))).toBe(true);
    expect(await attributes.set('user.x.long', Buffer.alloc(3000, 'v'))).toBe(true);
    expect(Object.fromEntries(await attributes.read('user.x.'))).toEqual({
      binary: Buffer.from([0, 0xff]),
      empty: Buffer.alloc(0),
      long: Buffer.alloc(3000, 'v'),
    });
    await attributes.remove('user.x.long');
    await attributes.remove('user.x.long');
    expect([...(await attributes.read('user.x.')).keys()].sort()).toEqual(['binary', 'empty']);
    expect(getAttributeSync(path, 'user.other').toString()).toBe('theirs');
  });

  test('belong to the open file, whatever its name refers to', async () => {
    const { path, descriptor } = openNew(place());
    const attributes = new Attributes(quickFile(descriptor));
    await attributes.set('user.a', Buffer.from('ours'));
    unlinkSync(path);
    writeFileSync(path, 'another');
    expect((await attributes.read('user.')).get('a')?.toString()).toBe('ours');
  });

  test('fail with the error of the system call', async () => {
    const attributes = new Attributes(quickFile(openNew(place()).descriptor));
    await expect(attributes.set(`user.${'x'.repeat(251)}`, Buffer.from(''))).rejects.toMatchObject({
      code: 'ERANGE',
      syscall: expect.any(String),
    });
  });
});

test('a file system without attributes has none, and set returns false', async () => {
  const descriptor = openSync('/proc/self/comm', 'r+');
  onTestFinished(() => closeSync(descriptor));
  const attributes = new Attributes(quickFile(descriptor));
  expect(await attributes.set('user.a', Buffer.from('x'))).toBe(false);
  expect(await attributes.read('user.')).toEqual(new Map());
  await attributes.remove('user.a');
});

test('an unresponsive server does not block the event loop', async () => {
  const [mounted] = mountFuse();
  const attributes = new Attributes(quickFile(openNew(mounted).descriptor));
  const server = serverOf(mounted);
  process.kill(server, 'SIGSTOP');
  let settled = 0;
  const work = [
    attributes.read('user.'),
    attributes.set('user.a', Buffer.from('x')),
    attributes.remove('user.a'),
  ].map((promise) => promise.finally(() => settled++));
  try {
    // No event tells that nothing has settled.
    await delay(100);
    expect(settled).toBe(0);
  } finally {
    process.kill(server, 'SIGCONT');
  }
  await Promise.all(work);
});
