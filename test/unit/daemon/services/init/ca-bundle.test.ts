import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  statfsSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { beforeEach, describe, expect, test } from 'vitest';
import { type TrustStore, trust, trustVariables } from '../../../../../src/daemon/services/init/ca-bundle.ts';
import { mountTmpfs } from '../../../../support/machine/mounts.ts';
import { needs } from '../../../../support/machine/needs.ts';
import { scratch } from '../../../../support/machine/scratch.ts';

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
  const hashed = join(root, 'hashed');
  return { bundle, others: [], hashed, local: join(root, 'local/envd.crt') };
}

function contents({ bundle, local }: Pick<TrustStore, 'bundle' | 'local'>): [string, string] {
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

test('an empty text removes what was added, and changes nothing else', async () => {
  const files = store();
  await trust('', files);
  expect(existsSync(files.local)).toBe(false);
  await trust(PEM.a, files);
  expect(trustVariables(files)).toMatchObject({
    SSL_CERT_FILE: files.bundle,
    NODE_EXTRA_CA_CERTS: files.local,
  });
  await trust('', files);
  expect(readFileSync(files.bundle, 'utf8')).toBe(PEM.system);
  expect(existsSync(files.local)).toBe(false);
  expect(trustVariables(files)).toEqual({});
});

describe('other places', () => {
  test('that exist get the certificates once each, and lose them again', async () => {
    const root = scratch();
    const others = ['fedora.pem', 'link.pem', 'missing.pem'].map((name) => join(root, name));
    const files = { ...store(), others };
    writeFileSync(others[0] ?? '', PEM.b);
    symlinkSync('fedora.pem', others[1] ?? '');
    await trust(PEM.a, files);
    expect(readFileSync(others[0] ?? '', 'utf8')).toBe(PEM.b + PEM.a);
    expect(readdirSync(root)).toEqual(['fedora.pem', 'link.pem']);
    await trust('', files);
    expect(readFileSync(others[0] ?? '', 'utf8')).toBe(PEM.b);
  });

  test('a directory by hash gets a file for each, beside one of the same name', async () => {
    const files = store();
    mkdirSync(files.hashed);
    const name = execFileSync('openssl', ['x509', '-noout', '-hash'], {
      encoding: 'utf8',
      input: PEM.a,
    }).trim();
    writeFileSync(join(files.hashed, `${name}.0`), PEM.system);
    await trust(PEM.a + PEM.b, files);
    expect(readFileSync(join(files.hashed, `${name}.1`), 'utf8')).toBe(PEM.a);
    expect(readdirSync(files.hashed)).toHaveLength(3);
    await trust(PEM.b, files);
    expect(existsSync(join(files.hashed, `${name}.1`))).toBe(false);
    await trust('', files);
    expect(readdirSync(files.hashed)).toEqual([`${name}.0`]);
  });
});

describe('on a full disk', () => {
  /** All of the disk but so many pages. */
  function fill(directory: string, pages: number): string {
    const filler = join(directory, 'filler');
    const { bavail, bsize } = statfsSync(directory);
    writeFileSync(filler, Buffer.alloc(Math.max(0, bavail - pages) * bsize));
    return filler;
  }

  test.each([0, 1, 2, 3])(
    'with %i pages left nothing is half written, and a later call succeeds',
    async (pages) => {
      const root = mountTmpfs('256k');
      const files = {
        bundle: join(root, 'bundle'),
        others: [],
        hashed: join(root, 'none'),
        local: join(root, 'local'),
      };
      // The bundle takes more pages than are left.
      const system = PEM.system + '# of the system\n'.repeat(1000);
      writeFileSync(files.bundle, system);
      await trust(PEM.a, files);
      const filler = fill(root, pages);
      await expect(trust(PEM.b, files)).rejects.toMatchObject({ code: 'ENOSPC' });
      const [bundle, local] = contents(files);
      expect(bundle).toBe(`${system.trimEnd()}\n${PEM.a}`);
      // Whole blocks: those that were added, or those that will be removed, too.
      expect([PEM.a, PEM.a + PEM.b]).toContain(local);
      expect(readdirSync(root).sort()).toEqual(['bundle', 'filler', 'local']);
      rmSync(filler);
      await trust(PEM.b, files);
      expect(contents(files)).toEqual([`${system.trimEnd()}\n${PEM.b}`, PEM.b]);
    },
  );
});
