import { chmodSync, closeSync, openSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { getAttributeSync, listAttributesSync, setAttributeSync } from 'fs-xattr';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { OpenFile } from '../../../../../../src/daemon/linux/files/open-file.ts';
import {
  type FileMetadata,
  type MetadataValues,
  replaceMetadata,
  validateMetadata,
} from '../../../../../../src/daemon/services/files/entries/metadata.ts';
import { mountFuse } from '../../../../../support/machine/mounts.ts';
import { needs } from '../../../../../support/machine/needs.ts';
import { scratch } from '../../../../../support/machine/scratch.ts';
import { quickFile } from '../../../../../support/services/lanes.ts';

const PREFIX = 'user.svc.';
const svc = (values: MetadataValues): FileMetadata => ({ values, prefix: PREFIX });

function openNew(directory = scratch()): { path: string; file: OpenFile } {
  const path = join(directory, 'file');
  writeFileSync(path, 'content');
  const descriptor = openSync(path, 'r+');
  onTestFinished(() => closeSync(descriptor));
  return { path, file: quickFile(descriptor) };
}

function attributesOf(path: string): Record<string, string> {
  const names = listAttributesSync(path).sort();
  return Object.fromEntries(names.map((name) => [name, getAttributeSync(path, name).toString()]));
}

describe('limits', () => {
  const accept = (metadata: MetadataValues) => expect(() => validateMetadata(svc(metadata))).not.toThrow();
  const refuse = (metadata: MetadataValues, names: string) =>
    expect(() => validateMetadata(svc(metadata))).toThrow(
      expect.objectContaining({ kind: 'invalid_argument', message: expect.stringContaining(names) }),
    );

  test('only printable ASCII is allowed', () => {
    accept({ 'key !~': ' value~!', empty: '' });
    refuse({ key: 'caf\u00e9' }, "'key'");
    refuse({ key: 'a\tb' }, "'key'");
    refuse({ key: 'a\x7f' }, "'key'");
    refuse({ caf\u00e9: 'x' }, 'caf\u00e9');
    refuse({ '': 'x' }, 'empty');
  });

  test('a key with the prefix fits into an attribute name', () => {
    accept({ ['k'.repeat(246)]: 'v' });
    refuse({ ['k'.repeat(247)]: 'v' }, '247');
    const longer = (length: number) => ({ values: { ['k'.repeat(length)]: 'v' }, prefix: 'user.longer.' });
    expect(() => validateMetadata(longer(243))).not.toThrow();
    expect(() => validateMetadata(longer(244))).toThrow('at most 243');
  });

  test('the sum is limited to 4096 bytes, including the prefix of each key', () => {
    accept({ a: 'v'.repeat(4096 - 9 - 1) });
    refuse({ a: 'v'.repeat(4096 - 9) }, '4097');
    accept({ a: 'v'.repeat(2038), b: 'v'.repeat(2038) });
    refuse({ a: 'v'.repeat(2038), b: 'v'.repeat(2039) }, '4097');
  });
});

describe.each(Object.entries({ here: scratch, 'on a network mount': () => mountFuse()[0] }))(
  'setting the metadata of %s',
  (_, place) => {
    test('removes keys that are not sent, and keeps attributes of others', async () => {
      const { path, file } = openNew(place());
      setAttributeSync(path, 'user.other', 'theirs');
      setAttributeSync(path, 'user.svc.binary', Buffer.from([0xff]));
      expect(await replaceMetadata(file, svc({ a: '1', b: '2' }))).toBe(true);
      expect(attributesOf(path)).toEqual({ 'user.other': 'theirs', 'user.svc.a': '1', 'user.svc.b': '2' });
      expect(await replaceMetadata(file, svc({ b: '3', c: '' }))).toBe(true);
      expect(attributesOf(path)).toEqual({ 'user.other': 'theirs', 'user.svc.b': '3', 'user.svc.c': '' });
      await replaceMetadata(file, svc({}));
      expect(attributesOf(path)).toEqual({ 'user.other': 'theirs' });
    });

    test('changes nothing when the metadata is the same', async () => {
      const { path, file } = openNew(place());
      await replaceMetadata(file, svc({ a: '1' }));
      chmodSync(path, 0o600);
      const before = statSync(path, { bigint: true }).ctimeNs;
      await replaceMetadata(file, svc({ a: '1' }));
      expect(statSync(path, { bigint: true }).ctimeNs).toBe(before);
      await replaceMetadata(file, svc({ a: '2' }));
      expect(statSync(path, { bigint: true }).ctimeNs).toBeGreaterThan(before);
    });

    test('changes nothing when there is no space', async () => {
      // All attributes of a file share one block.
      needs('ext4');
      const { path, file } = openNew(place());
      setAttributeSync(path, 'user.other', 'x'.repeat(2500));
      await replaceMetadata(file, svc({ a: 'old', b: 'old' }));
      await expect(replaceMetadata(file, svc({ a: 'new', c: 'x'.repeat(2500) }))).rejects.toThrow(
        expect.objectContaining({ kind: 'no_space' }),
      );
      expect(attributesOf(path)).toMatchObject({ 'user.svc.a': 'old', 'user.svc.b': 'old' });
      expect(attributesOf(path)).not.toHaveProperty(['user.svc.c']);
    });

    test('does nothing on a file system without attributes', async () => {
      const descriptor = openSync('/proc/self/comm', 'r+');
      onTestFinished(() => closeSync(descriptor));
      const file = quickFile(descriptor);
      expect(await replaceMetadata(file, svc({ a: '1' }))).toBe(false);
      expect(await replaceMetadata(file, svc({}))).toBe(true);
    });

    test('stores any valid metadata unchanged', async () => {
      const { path, file } = openNew(place());
      const printable = fc.integer({ min: 0x20, max: 0x7e }).map((code) => String.fromCharCode(code));
      const text = fc.string({ unit: printable, maxLength: 100 });
      const key = text.filter((name) => name !== '');
      await fc.assert(
        fc.asyncProperty(fc.dictionary(key, text, { maxKeys: 8 }), async (metadata) => {
          validateMetadata(svc(metadata));
          expect(await replaceMetadata(file, svc(metadata))).toBe(true);
          const carried = Object.entries(metadata).map(([name, value]) => [PREFIX + name, value]);
          expect(attributesOf(path)).toEqual(Object.fromEntries(carried));
        }),
        { numRuns: 100 },
      );
    });
  },
);
