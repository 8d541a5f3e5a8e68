import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  closeSync,
  ftruncateSync,
  lchownSync,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { getAttributeSync, listAttributesSync, setAttributeSync } from 'fs-xattr';

const bytes = (path: string) => Buffer.from(path, 'latin1');

/** Makes a directory that has one of everything that an archive can store. */
export function makeTree(root: string): void {
  const at = (name: string) => bytes(join(root, name));
  mkdirSync(at('a/empty'), { recursive: true });
  writeFileSync(at('plain'), 'hello');
  writeFileSync(at('empty'), '');
  writeFileSync(at('odd \xff\xfe\n"\\'), 'a name that is no UTF-8');
  writeFileSync(at('l'.repeat(255)), 'a long name');
  const deep = `a/${'b'.repeat(120)}/${'\xc3'.repeat(120)}`;
  mkdirSync(at(deep), { recursive: true });
  writeFileSync(at(`${deep}/file`), 'deep');
  symlinkSync(bytes(`/nowhere/\xe9${'z'.repeat(150)}`), at('dangling'));
  symlinkSync('plain', at('link'));
  symlinkSync('..', at('a/up'));
  writeFileSync(at('a/first'), 'linked');
  linkSync(at('a/first'), at('second'));
  linkSync(at('a/first'), at('a/third'));
  writeFileSync(at('big'), Buffer.alloc(3_000_001, 'big content '));
  makeSparse(join(root, 'sparse'));
  for (let size = 0; size < 300; size++) writeFileSync(at(`a/empty/${size}`), 'x'.repeat(size * 7));
  setAttributeSync(join(root, 'plain'), 'user.svc.author', 'ada');
  setAttributeSync(join(root, 'plain'), 'user.odd=%', Buffer.from([0, 10, 255]));
  setAttributeSync(join(root, 'a'), 'user.of-a-directory', 'x'.repeat(2000));
  chmodSync(at('plain'), 0o640);
  chmodSync(at('a/empty'), 0o1770);
  if (process.geteuid?.() === 0) {
    execFileSync('mkfifo', [join(root, 'fifo')]);
    chownSync(at('big'), 1234, 5678);
    lchownSync(at('link'), 70_000, 3_000_000);
    chownSync(at('a'), 3_000_000, 1);
    chmodSync(at('big'), 0o6755);
  }
  const touch = (time: string, ...names: readonly string[]) =>
    execFileSync('touch', ['-h', '-d', time, ...names.map((name) => join(root, name))]);
  touch('2009-02-13 23:31:30.123456789Z', 'plain', 'link', 'a/empty');
  touch('1965-01-01 00:00:00.25Z', 'empty', 'a');
}

/** Holes at the start, between, and at the end. */
function makeSparse(path: string): void {
  const file = openSync(path, 'w');
  writeSync(file, 'somewhere', 10 * 2 ** 20);
  writeSync(file, Buffer.alloc(100_000, 'data'), 0, 100_000, 40 * 2 ** 20);
  ftruncateSync(file, 60 * 2 ** 20);
  closeSync(file);
}

/** All properties of the entries below a directory, by their paths. */
export function describeTree(root: string): Record<string, unknown> {
  const described: Record<string, unknown> = {};
  const firstNames = new Map<bigint, string>();
  const visit = (path: string) => {
    const whole = bytes(root + path);
    const { mode, uid, gid, size, mtimeNs, ino, nlink } = lstatSync(whole, { bigint: true });
    const type = Number(mode) & 0o170000;
    const entry = { mode: mode.toString(8), uid, gid, mtimeNs, nlink: type === 0o40000 ? 0n : nlink };
    if (type === 0o40000) {
      described[path] = { ...entry, attributes: attributesOf(root + path) };
      for (const name of readdirSync(whole, 'latin1').sort()) visit(`${path}/${name}`);
    } else if (type === 0o100000) {
      const first = firstNames.get(ino) ?? path;
      firstNames.set(ino, first);
      const content = createHash('sha256').update(readFileSync(whole)).digest('hex');
      described[path] = { ...entry, size, content, first, attributes: attributesOf(root + path) };
    } else {
      described[path] = { ...entry, link: type === 0o120000 ? readlinkSync(whole, 'latin1') : '' };
    }
  };
  visit('');
  return described;
}

function attributesOf(path: string): unknown {
  // fs-xattr takes paths as text.
  if (/[^ -~]/.test(path)) return [];
  return listAttributesSync(path)
    .sort()
    .map((name) => [name, getAttributeSync(path, name).toString('latin1')]);
}

/** Debian's tar, with all attributes where the format has them. */
export function tar(...args: readonly string[]): Buffer {
  const hasAttributes = !args.some((arg) => /^--format=(v7|ustar)$/.test(arg));
  const options = hasAttributes ? ['--xattrs', '--xattrs-include=*'] : [];
  return execFileSync('tar', [...options, '--numeric-owner', ...args], { maxBuffer: 2 ** 30 });
}
