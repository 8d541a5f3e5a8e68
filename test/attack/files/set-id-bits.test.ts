import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { listAttributesSync, setAttributeSync } from 'fs-xattr';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { connectTo } from '../../support/clients/clients.ts';
import {
  filePart,
  MULTIPART,
  multipartBody,
  post,
  RAW,
  uploadRaw,
} from '../../support/clients/files-client.ts';
import { mountFuse } from '../../support/machine/mounts.ts';
import { needs } from '../../support/machine/needs.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

/** An untrusted user of the guest. */
const STRANGER = 65_534;
const SET_ID = 0o6000;
/** `vfs_cap_data` of linux/capability.h, version 2: cap_net_raw, permitted and effective. */
const CAP_NET_RAW = Buffer.from('0100000200200000000000000000000000000000', 'hex');

let daemon: TestDaemon;
let directory: string;
const at = (name: string) => join(directory, name);

beforeAll(async () => {
  daemon = await startDaemon();
  chmodSync(daemon.scratch, 0o755);
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});
beforeEach(() => {
  needs('root');
  directory = scratch();
  chownSync(directory, STRANGER, STRANGER);
});

/** Removes what is there, although the untrusted user may exchange files and directories meanwhile. */
function removeWhileRenamed(path: string): void {
  try {
    rmSync(path, { recursive: true, force: true });
  } catch {
    removeWhileRenamed(path);
  }
}

/** A file of the untrusted user with these mode bits. */
function plant(path: string, mode: number, owner = STRANGER): void {
  if (!existsSync(path)) writeFileSync(path, 'of the stranger');
  chownSync(path, owner, owner);
  chmodSync(path, mode);
}

/** Runs `script` as the untrusted user until the test has finished; resolves when the script prints something. */
async function attacker(script: string): Promise<ChildProcess> {
  const drop = `process.setgroups([]); process.setgid(${STRANGER}); process.setuid(${STRANGER});`;
  const child = spawn(process.execPath, ['-e', `const fs = require('fs'); ${drop} ${script}`], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  await new Promise((resolve) => child.stdout?.once('data', resolve));
  return child;
}

const bitsOf = (path: string) => statSync(path).mode & 0o7777;

describe('an upload over a file with set-id bits', () => {
  const small = Buffer.from('of the client');
  const large = randomBytes(3_000_000);
  const ways: [string, Buffer, () => Promise<Response>][] = [
    ['small', small, () => uploadRaw(daemon, at('f'), small)],
    ['large, straight from the socket', large, () => uploadRaw(daemon, at('f'), new Uint8Array(large))],
    [
      'coded',
      large,
      () => uploadRaw(daemon, at('f'), new Uint8Array(gzipSync(large)), { 'content-encoding': 'gzip' }),
    ],
    ['multipart', small, () => post(daemon, {}, MULTIPART, multipartBody([filePart(at('f'), small)]))],
    ['empty', Buffer.alloc(0), () => uploadRaw(daemon, at('f'), '')],
    ['with metadata', small, () => uploadRaw(daemon, at('f'), small, { 'x-metadata-a': '1' })],
  ];

  test.each(ways)('%s: clears them when the owner changes', async (_name, content, upload) => {
    // The second mode has only the bit that the kernel keeps when the owner of a file changes.
    for (const mode of [0o6777, 0o2767, 0o7755]) {
      plant(at('f'), mode);
      expect((await upload()).status).toBe(200);
      expect(content.equals(readFileSync(at('f')))).toBe(true);
      expect(statSync(at('f'))).toMatchObject({ uid: 0, gid: 0 });
      expect(bitsOf(at('f')).toString(8)).toBe((mode & ~SET_ID).toString(8));
    }
  });

  test('of the same owner clears them, as a write by the owner would', async () => {
    for (const [owner, username] of [
      [0, 'root'],
      [STRANGER, 'nobody'],
    ] as const) {
      plant(at('f'), 0o6755, owner);
      expect((await post(daemon, { path: at('f'), username }, RAW, 'new')).status).toBe(200);
      expect(statSync(at('f')).uid).toBe(owner);
      expect(bitsOf(at('f'))).toBe(0o755);
    }
  });

  test('never lets root’s file have the bits, although the old owner sets them in a loop', async () => {
    const path = at('f');
    plant(path, 0o6777);
    const seen = at('seen');
    writeFileSync(seen, '');
    chownSync(seen, STRANGER, STRANGER);
    // stat(2) may see the new owner with the old mode while both are being changed; chmod(2) waits for that to end.
    await attacker(`
      process.stdout.write('ready');
      const isRoots = () => { const { uid, mode } = fs.statSync('${path}'); return uid === 0 && mode & 0o4000; };
      const set = () => { try { fs.chmodSync('${path}', 0o6777); } catch {} };
      for (;;) {
        set();
        if (isRoots() && (set(), isRoots())) fs.appendFileSync('${seen}', 'x');
      }`);
    for (let round = 0; round < 100; round++) {
      expect((await uploadRaw(daemon, path, `round ${round}`)).status).toBe(200);
      const { uid, mode } = statSync(path);
      expect([uid, mode & SET_ID], `round ${round}`).toEqual([0, 0]);
      chownSync(path, STRANGER, STRANGER);
    }
    expect(readFileSync(seen, 'utf8')).toBe('');
  });

  test('clears them where no file can be staged', async () => {
    const [mounted, behind] = mountFuse();
    for (const mode of [0o6777, 0o2767]) {
      plant(join(behind, 'f'), mode);
      expect((await uploadRaw(daemon, join(mounted, 'f'), 'new')).status).toBe(200);
      expect(readFileSync(join(behind, 'f'), 'utf8')).toBe('new');
      expect(bitsOf(join(behind, 'f'))).toBe(mode & 0o777);
    }
  });

  test('clears them when compose writes the file', async () => {
    for (const root of [directory, mountFuse()[0]]) {
      plant(join(root, 'f'), 0o6777);
      writeFileSync(join(root, 'part'), 'joined');
      const response = await fetch(`${daemon.url}/files/compose`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ source_paths: [join(root, 'part')], destination: join(root, 'f') }),
      });
      expect(response.status).toBe(200);
      expect(statSync(join(root, 'f')).uid).toBe(0);
      expect(bitsOf(join(root, 'f'))).toBe(0o777);
    }
  });
});

describe('a move to another file system', () => {
  const move = (source: string, destination: string) =>
    connectTo(daemon.url).filesystem.move({ source, destination });

  function plantTree(): void {
    mkdirSync(at('tree/shared'), { recursive: true });
    plant(at('tree/f'), 0o6777);
    plant(at('tree/shared'), 0o2775);
    setAttributeSync(at('tree/f'), 'security.capability', CAP_NET_RAW);
  }

  test('drops the set-id bits and capabilities of files', async () => {
    const there = scratch('/dev/shm');
    plantTree();
    await move(at('tree'), join(there, 'tree'));
    expect(statSync(join(there, 'tree/f')).uid).toBe(STRANGER);
    expect(bitsOf(join(there, 'tree/f')).toString(8)).toBe('777');
    expect(listAttributesSync(join(there, 'tree/f'))).toEqual([]);
    // On a directory the bit grants no rights: it only sets the group of new entries.
    expect(statSync(join(there, 'tree/shared'))).toMatchObject({ uid: STRANGER, gid: STRANGER });
    expect(bitsOf(join(there, 'tree/shared')).toString(8)).toBe('2775');
  });

  test('drops the bits of directories, too, when the owner cannot be kept', async () => {
    const [mounted, behind] = mountFuse('--chown-deny');
    plantTree();
    await move(at('tree'), join(mounted, 'tree'));
    expect(statSync(join(behind, 'tree/f')).uid).toBe(0);
    expect(bitsOf(join(behind, 'tree/f')).toString(8)).toBe('777');
    expect(statSync(join(behind, 'tree/shared')).uid).toBe(0);
    expect(bitsOf(join(behind, 'tree/shared')).toString(8)).toBe('775');
  });
});

describe('a directory that MakeDir or an upload makes', () => {
  test('has no set-group-ID bit below a directory that has it', async () => {
    chmodSync(directory, 0o2777);
    expect((await post(daemon, { path: at('a/b/f'), username: 'daemon' }, RAW, 'x')).status).toBe(200);
    for (const made of ['a', 'a/b']) {
      expect(statSync(at(made))).toMatchObject({ uid: 1, gid: 1 });
      expect(bitsOf(at(made))).toBe(0o755);
    }
  });

  test('is not given to the user when another file has taken its place', async () => {
    const [made, secret, away] = [at('made'), at('secret'), at('away')];
    const original = join(daemon.scratch, 'secret-of-root');
    writeFileSync(original, 'secret', { mode: 0o600 });
    await attacker(`
      process.stdout.write('ready');
      for (;;) {
        try { fs.renameSync('${made}', '${away}'); } catch { continue; }
        try { fs.renameSync('${secret}', '${made}'); } catch {}
      }`);
    const { filesystem } = connectTo(daemon.url);
    const headers = { authorization: `Basic ${btoa('nobody:')}` };
    for (let round = 0; round < 200; round++) {
      linkSync(original, secret);
      await filesystem.makeDir({ path: made }, { headers }).catch(() => {});
      expect(statSync(original).uid, `round ${round}`).toBe(0);
      for (const path of [made, secret, away]) removeWhileRenamed(path);
    }
  });
});
