import { createHash } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  lchownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { FIRST_ID } from './oci.ts';
import { run } from './tools.ts';

const SUITE = 'bookworm';
/** What every sandbox has besides Debian's essential packages. */
const PACKAGES = [
  ...['ca-certificates', 'curl', 'git', 'iproute2', 'libnss-myhostname', 'nodejs', 'procps', 'python3'],
  ...['sudo', 'tini'],
];
const SET_ID_BITS = 0o6000;

/** Files of the root file system besides those of the packages. */
const FILES: Readonly<Record<string, string>> = {
  'etc/hosts': '127.0.0.1 localhost\n::1 localhost\n',
  'etc/sudoers.d/user': 'user ALL=(ALL) NOPASSWD: ALL\n',
};

/**
 * Returns the root file system of containers, which is built of Debian's packages unless it is there already. Its files belong to the
 * users of containers. Throws when the packages cannot be had.
 */
export function buildRoot(cache: string, more: readonly string[], say: (text: string) => void): string {
  const packages = [...PACKAGES, ...more];
  const inputs = JSON.stringify([SUITE, packages, FILES, FIRST_ID]);
  const root = join(cache, `root-${createHash('sha256').update(inputs).digest('hex').slice(0, 16)}`);
  if (existsSync(root)) return root;
  say(`building the root file system of Debian's packages, once, in ${root}`);
  const unfinished = `${root}.unfinished`;
  rmSync(unfinished, { recursive: true, force: true });
  mkdirSync(cache, { recursive: true });
  const options = ['--quiet', '--mode=root', '--variant=minbase', `--include=${packages.join(',')}`];
  run('mmdebstrap', [...options, SUITE, unfinished]);
  run('chroot', [unfinished, 'useradd', '--create-home', '--shell=/bin/bash', '--uid=1000', 'user']);
  for (const [name, text] of Object.entries(FILES))
    writeFileSync(join(unfinished, name), text, { mode: 0o644 });
  mkdirSync(join(unfinished, 'opt/envd'), { recursive: true });
  shiftOwners(unfinished);
  renameSync(unfinished, root);
  return root;
}

/** Gives a file, and everything below it, to the users of containers with the same numbers. */
function shiftOwners(path: string): void {
  const stat = lstatSync(path);
  const { uid, gid, mode } = stat;
  lchownSync(path, FIRST_ID + uid, FIRST_ID + gid);
  // A change of the owner removes these bits.
  if (stat.isFile() && (mode & SET_ID_BITS) !== 0) chmodSync(path, mode & 0o7777);
  if (stat.isDirectory()) for (const name of readdirSync(path)) shiftOwners(join(path, name));
}
