import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Guest } from '../../../../../src/daemon/services/guest/guest.ts';
import { Identity } from '../../../../../src/daemon/services/init/identity.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { testUsers } from '../../../../support/machine/users.ts';

function setUp() {
  const guest = new Guest(testUsers(scratch()));
  const directory = join(scratch(), 'run/svc');
  const files = () =>
    Object.fromEntries(
      readdirSync(directory).map((name) => [name, readFileSync(join(directory, name), 'utf8')]),
    );
  return { guest, directory, files, identity: new Identity(guest, directory, 'svc') };
}

test('the identity is set as variables and as files that everybody can read', async () => {
  const { guest, directory, files, identity } = setUp();
  guest.environment = { A: '1', SVC_SANDBOX_ID: 'mine' };
  await identity.publish({ sandboxID: 'box', templateID: 'plate' });
  const own = { SVC_SANDBOX: 'true', SVC_SANDBOX_ID: 'box', SVC_TEMPLATE_ID: 'plate' };
  expect(guest.environment).toEqual({ A: '1', ...own });
  expect(files()).toEqual(own);
  expect(statSync(directory).mode & 0o777).toBe(0o711);
  expect(statSync(join(directory, 'SVC_SANDBOX_ID')).mode & 0o777).toBe(0o644);
  guest.environment = { B: '2' };
  expect(guest.environment).toEqual({ B: '2', ...own });
});

test('the prefix of the names is configurable', async () => {
  const { guest, directory, files } = setUp();
  await new Identity(guest, directory, 'e2b').publish({ sandboxID: 'box', templateID: 'plate' });
  const own = { E2B_SANDBOX: 'true', E2B_SANDBOX_ID: 'box', E2B_TEMPLATE_ID: 'plate' };
  expect(guest.environment).toEqual(own);
  expect(files()).toEqual(own);
});

test('a new identity replaces the previous one', async () => {
  const { guest, files, identity } = setUp();
  await identity.publish({ sandboxID: 'box', templateID: 'plate' });
  await identity.publish({ sandboxID: 'other', templateID: null });
  expect(guest.environment).toEqual({ SVC_SANDBOX: 'true', SVC_SANDBOX_ID: 'other' });
  expect(files()).toEqual({ SVC_SANDBOX: 'true', SVC_SANDBOX_ID: 'other' });
});

test('the last of concurrent calls wins, and the same identity again changes no file', async () => {
  const { directory, files, identity } = setUp();
  await Promise.all(['a', 'b', 'c'].map((sandboxID) => identity.publish({ sandboxID, templateID: null })));
  expect(files()).toMatchObject({ SVC_SANDBOX_ID: 'c' });
  const { ino } = statSync(join(directory, 'SVC_SANDBOX_ID'));
  await identity.publish({ sandboxID: 'c', templateID: null });
  expect(statSync(join(directory, 'SVC_SANDBOX_ID')).ino).toBe(ino);
});

test('a directory that cannot be made is an error, and the variables are set', async () => {
  const { guest, directory, identity } = setUp();
  const taken = join(directory, '../../run');
  writeFileSync(taken, '');
  await expect(identity.publish({ sandboxID: 'box', templateID: null })).rejects.toMatchObject({
    code: 'ENOTDIR',
  });
  expect(guest.environment).toMatchObject({ SVC_SANDBOX_ID: 'box' });
});
