import { EnvdError } from '../../../../base/errors.ts';
import type { DirectoryWriter } from '../../../linux/files/directory-writer.ts';
import { type BytePath, displayPath } from '../../../linux/paths/byte-path.ts';
import { MAX_PATH_BYTES } from '../../../linux/paths/paths.ts';
import { explain } from '../../../linux/system/errno.ts';
import type { User } from '../../../linux/system/users.ts';
import { ByteSource } from '../format/byte-source.ts';
import { timeOf } from '../format/pax-reader.ts';
import { type Member, TarReader } from '../format/reader.ts';
import { DirectoryStack, type Level } from './directory-stack.ts';
import { storeFile } from './file-store.ts';
import { memberPath } from './member-path.ts';
import { UnpackedFiles } from './unpacked-files.ts';

/** Larger files are written as they come. */
const SMALL = 256 * 1024;
const MAX_ID = 0xffff_fffe;

/** Counts what was unpacked. */
export interface Unpacked {
  files: number;
  directories: number;
  /** Counts symbolic and hard links. */
  links: number;
  /** The content of files. */
  bytes: number;
  /** Counts fifos and devices, which are not unpacked. */
  skipped: number;
}

export interface UnpackOptions {
  /** The path in errors. */
  readonly shown: string;
  readonly user: User;
  /** The signal aborts when the client disconnects. */
  readonly signal: AbortSignal;
  /** Runs what goes on while the next bytes are awaited. */
  readonly runOverlapping: <T>(step: () => Promise<T>) => Promise<T>;
}

/**
 * Unpacks an archive below an open directory. Files and links replace what has their names, each atomically.
 * Directories that exist are kept as they are. What was unpacked before an error stays, and the error says how much it
 * was. Throws `invalid_argument` for malformed archives and for names that lead out of the directory, `no_space`, and
 * the errors of the file system.
 */
export async function unpack(
  source: AsyncIterable<Buffer>,
  root: DirectoryWriter,
  options: UnpackOptions,
): Promise<Unpacked> {
  await using bytes = new ByteSource(source);
  const unpacker = new Unpacker(new TarReader(bytes), root, options);
  try {
    await unpacker.run();
    await bytes.drain();
    return unpacker.done;
  } catch (error) {
    throw withProgress(error, unpacker.done);
  }
}

class Unpacker {
  readonly done: Unpacked = { files: 0, directories: 0, links: 0, bytes: 0, skipped: 0 };
  readonly #reader: TarReader;
  readonly #options: UnpackOptions;
  readonly #stack: DirectoryStack;
  /** Hard links may lead only to these files, which were unpacked. */
  readonly #files = new UnpackedFiles();

  constructor(reader: TarReader, root: DirectoryWriter, options: UnpackOptions) {
    this.#reader = reader;
    this.#options = options;
    this.#stack = new DirectoryStack(root, options.user, options.runOverlapping);
  }

  async run(): Promise<void> {
    try {
      for (let member = await this.#next(); member; member = await this.#next()) {
        const current = member;
        await this.#explaining(member.name, () => this.#unpack(current));
      }
    } finally {
      await this.#stack.leaveAll();
    }
    this.#stack.assertNoFailure();
  }

  async #next(): Promise<Member | null> {
    this.#stack.assertNoFailure();
    this.#options.signal.throwIfAborted();
    return this.#reader.next();
  }

  async #unpack(member: Member): Promise<void> {
    const path = memberPath(member.name);
    const name = path.pop();
    const isDirectory = member.type === '5' || (isFile(member.type) && member.name.endsWith('/'));
    if (name === undefined) {
      if (!isDirectory) throw invalid(member, 'has no name');
      return;
    }
    const level = await this.#stack.enter(path);
    await this.#stack.settled(level, name);
    if (isDirectory) await this.#directory(level, name, member);
    else if (isFile(member.type)) await this.#file(level, name, member);
    else if (member.type === '1') await this.#hardLink(level, name, member);
    else if (member.type === '2') await this.#symbolicLink(level, name, member);
    else if ('346'.includes(member.type)) this.done.skipped++;
    else throw invalid(member, `is of type '${displayPath(member.type)}', which cannot be unpacked`);
  }

  async #directory(level: Level, name: BytePath, member: Member): Promise<void> {
    const owner = this.#ownerOf(member);
    // Set-group-ID grants no rights, and a directory needs it to pass its group on.
    const mode = member.mode & (this.#keepsOwners ? 0o3777 : 0o1777);
    const facts = { mode, owner, attributes: member.attributes, modified: timeOf(member) };
    if (await this.#stack.make(level, name, facts)) this.done.directories++;
  }

  async #file(level: Level, name: BytePath, member: Member): Promise<void> {
    const { signal } = this.#options;
    const owner = this.#ownerOf(member);
    // Uploads never set set-id bits: see docs/decisions/006-paths-and-rights.md.
    const target = { directory: level.writer, name, owner, mode: member.mode & 0o1777, signal };
    const count = () => {
      this.done.files++;
      this.done.bytes += member.size;
    };
    this.#files.add(memberPath(member.name).join('/'));
    if (member.size > SMALL) {
      await storeFile((most) => this.#reader.someContent(most), member, target);
      return count();
    }
    const content = await this.#reader.content();
    const store = () =>
      this.#explaining(member.name, async () => {
        await storeFile(takerOf(content), member, target);
        count();
      });
    return this.#stack.start(level, name, store);
  }

  async #symbolicLink(level: Level, name: BytePath, member: Member): Promise<void> {
    if (member.link === '') throw invalid(member, 'is a symbolic link without a target');
    if (member.link.length > MAX_PATH_BYTES)
      throw invalid(member, `is a symbolic link to more than ${MAX_PATH_BYTES} bytes`);
    const owner = this.#ownerOf(member);
    await this.#stack.start(level, name, () =>
      this.#explaining(member.name, async () => {
        await level.writer.makeLink(name, member.link, owner, timeOf(member));
        this.done.links++;
      }),
    );
  }

  async #hardLink(level: Level, name: BytePath, member: Member): Promise<void> {
    const path = memberPath(member.link);
    if (!this.#files.has(path.join('/')))
      throw invalid(
        member,
        `is a hard link to '${displayPath(member.link)}', which is no file of this archive`,
      );
    // The file may not have been stored yet.
    await this.#stack.allSettled();
    const target = path.pop() ?? '';
    await using from = await this.#stack.open(path);
    await using file = await from.openToLink(target);
    const status = await file.exactStat();
    if (!status.isFile() || (!this.#keepsOwners && Number(status.uid) !== this.#options.user.uid))
      throw invalid(member, `is a hard link to '${displayPath(member.link)}', which was replaced meanwhile`);
    await level.writer.linkFile(file, name);
    this.#files.add(memberPath(member.name).join('/'));
    this.done.links++;
  }

  get #keepsOwners(): boolean {
    return this.#options.user.uid === 0;
  }

  /** Returns the owner in the archive if the user is root, or else the user. */
  #ownerOf(member: Member): { uid: number; gid: number } {
    const { uid, gid } = this.#keepsOwners ? member : this.#options.user;
    if (uid > MAX_ID || gid > MAX_ID) throw invalid(member, 'has an owner that is no valid number');
    return { uid, gid };
  }

  /** Runs a step and translates its errors. */
  async #explaining<T>(name: BytePath, step: () => Promise<T>): Promise<T> {
    try {
      return await step();
    } catch (error) {
      const { shown } = this.#options;
      const path = `${shown === '/' ? '' : shown}/${displayPath(name)}`;
      throw explain(error, path, 'make');
    }
  }
}

function takerOf(content: Buffer): (most: number) => Promise<Buffer> {
  let taken = 0;
  return async (most) => {
    const piece = content.subarray(taken, taken + most);
    taken += piece.length;
    return piece;
  };
}

function isFile(type: string): boolean {
  return type === '0' || type === '\0' || type === '7';
}

function invalid(member: Member, problem: string): EnvdError {
  return new EnvdError('invalid_argument', `entry '${displayPath(member.name)}' of the archive ${problem}`);
}

function withProgress(error: unknown, done: Unpacked): unknown {
  if (!(error instanceof EnvdError)) return error;
  const { files, directories, links, bytes } = done;
  const text = `${files} files (${bytes} bytes), ${directories} directories and ${links} links`;
  return new EnvdError(error.kind, `${error.message}; unpacked before: ${text}`, { cause: error.cause });
}
