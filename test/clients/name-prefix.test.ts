import { join } from 'node:path';
import { getAttributeSync, listAttributesSync } from 'fs-xattr';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Guest, startGuest } from '../support/programs/sandbox.ts';

/* A daemon with the attribute names of a published client: attributes that programs set are visible to the client. */

const metadata = { author: 'Ada' };

describe.each([
  ['e2b', ['--name-prefix=e2b']],
  ['svc', []],
])('the metadata namespace of a daemon for %s', (prefix, args) => {
  let guest: Guest;
  beforeAll(async () => {
    guest = await startGuest({ args });
  });
  afterAll(() => guest[Symbol.asyncDispose]());

  const inGuest = (name: string) => join(guest.directory, name);

  test.each([
    ['as a form', {}],
    ['as raw bytes', { useOctetStream: true }],
  ])('is the prefix of an upload’s attributes, %s', async (name, options) => {
    const path = inGuest(name);
    expect(await guest.sandbox.files.write(path, 'x', { metadata, ...options })).toMatchObject({ metadata });
    expect(listAttributesSync(path)).toEqual([`user.${prefix}.author`]);
    expect(getAttributeSync(path, `user.${prefix}.author`).toString()).toBe('Ada');
    expect((await guest.sandbox.files.getInfo(path)).metadata).toEqual(metadata);
  });

  test('is the prefix of the attributes that a client sees', async () => {
    const { files, commands } = guest.sandbox;
    const path = inGuest('by a program');
    await files.write(path, 'x');
    const set = (name: string) => `python3 -c "import os; os.setxattr('${path}', '${name}', b'Ada')"`;
    await commands.run(set('user.other.author'));
    expect((await files.getInfo(path)).metadata).toBeUndefined();
    await commands.run(set(`user.${prefix}.author`));
    expect((await files.getInfo(path)).metadata).toEqual(metadata);
    expect((await files.list(guest.directory)).find(({ name }) => name === 'by a program')).toMatchObject({
      metadata,
    });
    expect((await files.rename(path, `${path} moved`)).metadata).toEqual(metadata);
    // An upload replaces the attributes with this prefix, and keeps others.
    await files.write(`${path} moved`, 'x');
    expect(listAttributesSync(`${path} moved`)).toEqual(['user.other.author']);
  });

  test('counts towards the length limit of a key', async () => {
    const key = 'k'.repeat(255 - `user.${prefix}.`.length);
    const path = inGuest('long');
    expect(await guest.sandbox.files.write(path, 'x', { metadata: { [key]: 'v' } })).toMatchObject({ path });
    await expect(guest.sandbox.files.write(path, 'x', { metadata: { [`${key}k`]: 'v' } })).rejects.toThrow(
      /key/,
    );
  });
});
