import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { beforeEach, describe, expect, test } from 'vitest';
import { type TrustStore, trust } from '../../../../../src/daemon/services/init/ca-bundle.ts';
import { needs } from '../../../../support/needs.ts';
import { scratch } from '../../../../support/scratch.ts';

/** Certificates made for this test. */
const PEM: Record<'system' | 'a' | 'b' | 'c', string> = { system: '', a: '', b: '', c: '' };

beforeEach(() => {
  needs('openssl');
  if (PEM.system !== '') return;
  for (const name of Object.keys(PEM) as (keyof typeof PEM)[]) {
    const options = [
      '-x509',
      '-nodes',
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:P-256',
      '-keyout',
      '/dev/null',
    ];
    PEM[name] = execFileSync('openssl', ['req', ...options, '-subj', `/CN=${name}`], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
  }
});

function store(): TrustStore {
  const root = scratch();
  const bundle = join(root, 'ssl/ca-certificates.crt');
  mkdirSync(dirname(bundle));
  writeFileSync(bundle, PEM.system);
  return { bundle, local: join(root, 'local/envd.crt') };
}

function contents({ bundle, local }: TrustStore): [string, string] {
  return [readFileSync(bundle, 'utf8'), readFileSync(local, 'utf8')];
}

describe('certificates', () => {
  test('are added to the bundle, and stored for its next update', async () => {
    const files = store();
    await trust(PEM.a + PEM.b, files);
    expect(contents(files)).toEqual([PEM.system + PEM.a + PEM.b, PEM.a + PEM.b]);
  });

  test('replace those of the previous call', async () => {
    const files = store();
    await trust(PEM.a + PEM.b, files);
    await trust(PEM.b + PEM.c, files);
    expect(contents(files)).toEqual([PEM.system + PEM.b + PEM.c, PEM.b + PEM.c]);
  });

  test('are found in a bundle by update-ca-certificates', async () => {
    const files = store();
    await trust(PEM.a, files);
    writeFileSync(files.bundle, PEM.a + PEM.system);
    await trust(PEM.b, files);
    expect(contents(files)).toEqual([PEM.system + PEM.b, PEM.b]);
  });

  test('that the system trusts are not removed', async () => {
    const files = store();
    await trust(PEM.a + PEM.system.replaceAll('\n', '\r\n'), files);
    expect(contents(files)).toEqual([PEM.system + PEM.a, PEM.a]);
    await trust(PEM.b, files);
    expect(contents(files)[0]).toBe(PEM.system + PEM.b);
  });

  test('that the system trusts are not stored again', async () => {
    const files = store();
    await trust(PEM.system, files);
    expect(existsSync(files.local)).toBe(false);
  });

  test('are added once, without the text around them', async () => {
    const files = store();
    await trust(`subject: a\n${PEM.a}\nagain:\n${PEM.a.replaceAll('\n', '\r\n')}`, files);
    expect(contents(files)).toEqual([PEM.system + PEM.a, PEM.a]);
  });

  test('make the bundle when it is missing', async () => {
    const files = { ...store(), bundle: join(scratch(), 'new/bundle.crt') };
    await trust(PEM.a, files);
    expect(contents(files)).toEqual([PEM.a, PEM.a]);
  });
});

test('the same certificates again change no file', async () => {
  const files = store();
  await trust(PEM.a, files);
  const before = [statSync(files.bundle).ino, statSync(files.local).ino];
  await trust(PEM.a, files);
  expect([statSync(files.bundle).ino, statSync(files.local).ino]).toEqual(before);
});

test('files keep their mode, and no temporary file is left', async () => {
  const files = store();
  chmodSync(files.bundle, 0o640);
  await trust(PEM.a, files);
  expect(statSync(files.bundle).mode & 0o777).toBe(0o640);
  expect(statSync(files.local).mode & 0o777).toBe(0o644);
  expect(readdirSync(dirname(files.bundle))).toEqual(['ca-certificates.crt']);
});

test('certificates of a failed call are removed by the next one', async () => {
  const files = store();
  await trust(PEM.a, files);
  // The directory takes the name of the temporary file, so that the bundle cannot be replaced.
  mkdirSync(`${files.bundle}.envd`);
  await expect(trust(PEM.b, files)).rejects.toThrow();
  expect(contents(files)[0]).toBe(PEM.system + PEM.a);
  rmdirSync(`${files.bundle}.envd`);
  await trust(PEM.c, files);
  expect(contents(files)).toEqual([PEM.system + PEM.c, PEM.c]);
});

test('an invalid certificate is refused, and nothing changes', async () => {
  const files = store();
  await expect(trust('hello', files)).rejects.toMatchObject({
    kind: 'invalid_argument',
    message: 'caBundle must contain a certificate in PEM',
  });
  const broken = PEM.b.replace(/M[A-Za-z]/, 'AA');
  await expect(trust(PEM.a + broken, files)).rejects.toMatchObject({
    kind: 'invalid_argument',
    message: 'certificate 2 of caBundle is not a valid X.509 certificate',
  });
  expect(readFileSync(files.bundle, 'utf8')).toBe(PEM.system);
  expect(existsSync(files.local)).toBe(false);
});
