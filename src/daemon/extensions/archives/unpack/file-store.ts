import type { DirectoryWriter, NewFile } from '../../../linux/files/directory-writer.ts';
import type { Owner } from '../../../linux/files/place.ts';
import { writeTimes } from '../../../linux/files/times.ts';
import { writeFully } from '../../../linux/files/write-fully.ts';
import { Attributes } from '../../../linux/files/xattr.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';
import { timeOf } from '../format/pax-reader.ts';
import type { Member } from '../format/reader.ts';

/** Describes where and how a file is stored. */
export interface FileTarget {
  readonly directory: DirectoryWriter;
  readonly name: BytePath;
  readonly owner: Owner;
  readonly mode: number;
  readonly signal: AbortSignal;
}

/** This many bytes are received before they are written. */
const PIECE = 512 * 1024;

/**
 * Stores a file, which appears complete or not at all. `take` takes the next bytes of its stored content, at least one
 * and at most as many as it is asked for.
 */
export async function storeFile(
  take: (most: number) => Promise<Buffer>,
  member: Member,
  target: FileTarget,
): Promise<void> {
  await using made = await target.directory.createFile();
  let end = 0;
  for (let done = 0; done < member.size; ) {
    const piece = await take(Math.min(PIECE, member.size - done));
    const start = done;
    done += piece.length;
    // Zeros become a hole, so that a sparse file takes as little room here as where it was packed.
    if (isZero(piece)) continue;
    await writeFully(made.file, [piece], start, target.signal);
    end = done;
  }
  if (end < member.size) await made.file.truncate(member.size);
  await complete(made, member, target);
}

/** A piece is all zeros if it begins with one and each byte equals the next. */
function isZero(piece: Buffer): boolean {
  return piece[0] === 0 && piece.subarray(1).equals(piece.subarray(0, -1));
}

async function complete(made: NewFile, member: Member, target: FileTarget): Promise<void> {
  const { file } = made;
  await file.chmod(target.mode);
  const attributes = new Attributes(file);
  for (const { name, value } of member.attributes) await attributes.set(name, value);
  target.signal.throwIfAborted();
  await made.publish(target.name, target.owner);
  await file.run(() => writeTimes(file.fd, timeOf(member), timeOf(member)));
}
