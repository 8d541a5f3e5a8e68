import { constants } from 'node:fs';
import { type FileHandle, link, mkdir, open, readdir } from 'node:fs/promises';
import { EnvdError } from '../../../base/errors.ts';
import { type BytePath, bytePath, displayPath, joinBytes, pathBuffer } from '../../os/byte-path.ts';
import { native } from '../../os/native.ts';
import { copyLink, copyStatus, O_ENTRY } from './copy-status.ts';

const { O_RDONLY, O_WRONLY, O_CREAT, O_EXCL, O_NONBLOCK, O_DIRECTORY } = constants;

/** Target paths of files with several hard links, by device and inode. */
type Copied = Map<string, BytePath>;

/**
 * Copies the tree at `source` (`/proc/self/fd/…/name`) to `target`, which must be in a directory that only root can
 * enter. Keeps content, owners, modes without set-id bits, extended attributes, times, symbolic and hard links. Each
 * entry is read through one descriptor, so that replacing it meanwhile cannot mix the attributes of two files. `shown`:
 * the source's path in errors. Throws `failed_precondition` for fifos, sockets and devices.
 */
export async function copyTree(
  source: BytePath,
  target: BytePath,
  shown: string,
  copied: Copied = new Map(),
): Promise<void> {
  await using entry = await open(pathBuffer(source), O_ENTRY);
  const status = await entry.stat({ bigint: true });
  const key = `${status.dev}:${status.ino}`;
  const first = copied.get(key);
  if (first !== undefined) return link(pathBuffer(first), pathBuffer(target));
  if (status.nlink > 1n && !status.isDirectory()) copied.set(key, target);

  if (status.isFile()) await copyFile(entry, target);
  else if (status.isDirectory()) await copyDirectory(entry, target, shown, copied);
  else if (status.isSymbolicLink()) await copyLink(entry, target);
  else throw withoutContent(shown);
}

function withoutContent(path: string): EnvdError {
  const message = `cannot move a fifo, socket or device to another file system: '${path}'`;
  return new EnvdError('failed_precondition', message);
}

/** Path to reopen an open entry. */
function pathOf({ fd }: FileHandle): BytePath {
  return `/proc/self/fd/${fd}`;
}

async function copyFile(entry: FileHandle, target: BytePath): Promise<void> {
  await using from = await open(pathOf(entry), O_RDONLY | O_NONBLOCK);
  await using to = await open(pathBuffer(target), O_WRONLY | O_CREAT | O_EXCL, 0o600);
  await native.copyRange(from.fd, to.fd, 0, Number.MAX_SAFE_INTEGER);
  await copyStatus(from, to);
}

async function copyDirectory(
  entry: FileHandle,
  target: BytePath,
  shown: string,
  copied: Copied,
): Promise<void> {
  await using from = await open(pathOf(entry), O_RDONLY | O_DIRECTORY);
  await mkdir(pathBuffer(target), { mode: 0o700 });
  await using to = await open(pathBuffer(target), O_RDONLY | O_DIRECTORY);
  for (const name of (await readdir(pathOf(from), 'buffer')).map(bytePath)) {
    await copyTree(
      `${pathOf(from)}/${name}`,
      joinBytes(target, name),
      `${shown}/${displayPath(name)}`,
      copied,
    );
  }
  // Last, because adding entries changes the directory's times.
  await copyStatus(from, to);
}
