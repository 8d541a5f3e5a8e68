import { setImmediate } from 'node:timers/promises';
import { EnvdError } from '../../../../base/errors.ts';
import type { Attribute } from '../../../linux/files/entries.ts';
import { type BytePath, displayPath } from '../../../linux/paths/byte-path.ts';
import { BLOCK } from './block-writer.ts';
import type { ByteSource } from './byte-source.ts';
import { type RawHeader, type Refuse, readHeader, textAt } from './header-reader.ts';
import { type PaxRecords, paxAttributes, paxNumber, paxTime, readPax } from './pax-reader.ts';

/** All headers that describe one member, and all that hold for every member, have at most this many bytes each. */
const MAX_HEADERS = 1024 * 1024;
/** A member with more records gets a turn of the event loop of its own, because it takes some of it. */
const FEW_RECORDS = 64;
/** An archive has at most this many headers. */
const MAX_MEMBERS = 5_000_000;

/** Describes a member of an archive. */
export interface Member extends RawHeader {
  readonly nanoseconds: number;
  /** The extended attributes of users, `user.*`. */
  readonly attributes: readonly Attribute[];
}

/** What the headers before a member say about it. */
interface Extensions {
  readonly records: PaxRecords;
  name: BytePath | null;
  link: BytePath | null;
  bytes: number;
}

/** Reads the members of an archive one after the other. Errors name the offset or the member. */
export class TarReader {
  readonly #source: ByteSource;
  /** These records hold for all members from here on. */
  readonly #common: PaxRecords = new Map();
  #commonBytes = 0;
  #members = 0;
  /** The bytes left of the current member's content, and of its padding. */
  #left = 0;
  #padding = 0;

  constructor(source: ByteSource) {
    this.#source = source;
  }

  /** Takes the whole content, which should be small. */
  async content(): Promise<Buffer> {
    const content = await this.#source.take(this.#left);
    this.#left = 0;
    return content;
  }

  /** Takes between 1 and `most` bytes of the content. */
  async someContent(most: number): Promise<Buffer> {
    const piece = await this.#source.takeSome(Math.min(most, this.#left));
    this.#left -= piece.length;
    return piece;
  }

  /** Returns the next member, after skipping what is left of the current one, or null at the end of the archive. */
  async next(): Promise<Member | null> {
    await this.#skipRest();
    const extensions: Extensions = { records: new Map(this.#common), name: null, link: null, bytes: 0 };
    for (;;) {
      if (extensions.records.size > FEW_RECORDS) await setImmediate();
      const start = this.#source.position;
      const refuse = refuser(`archive is malformed at byte ${start}`);
      const block = await this.#source.take(BLOCK);
      const header = readHeader(block, refuse);
      if (!header) return null;
      if (++this.#members > MAX_MEMBERS) refuse(`archive has more than ${MAX_MEMBERS} members`);
      if (!(await this.#extend(header, extensions, refuse))) return this.#member(header, extensions);
    }
  }

  async #skipRest(): Promise<void> {
    const rest = this.#left + this.#padding;
    this.#left = 0;
    this.#padding = 0;
    await this.#source.skip(rest);
  }

  /** Takes the body of a header that describes others. Returns false for a member. */
  async #extend(header: RawHeader, extensions: Extensions, refuse: Refuse): Promise<boolean> {
    if (!'xgLKXV'.includes(header.type)) return false;
    extensions.bytes += header.size + BLOCK;
    if (extensions.bytes > MAX_HEADERS) refuse(`headers of one member have more than ${MAX_HEADERS} bytes`);
    const padded = Math.ceil(header.size / BLOCK) * BLOCK;
    const body = (await this.#source.take(padded)).subarray(0, header.size);
    if (header.type === 'x' || header.type === 'X') readPax(body, extensions.records, refuse);
    if (header.type === 'L') extensions.name = textAt(body, [0, body.length]);
    if (header.type === 'K') extensions.link = textAt(body, [0, body.length]);
    if (header.type !== 'g') return true;
    this.#commonBytes += header.size;
    if (this.#commonBytes > MAX_HEADERS) refuse(`global headers have more than ${MAX_HEADERS} bytes`);
    readPax(body, this.#common, refuse);
    readPax(body, extensions.records, refuse);
    return true;
  }

  #member(header: RawHeader, extensions: Extensions): Member {
    const { records } = extensions;
    const name = records.get('path') || extensions.name || header.name;
    const link = records.get('linkpath') || extensions.link || header.link;
    const refuse = refuser(`entry '${displayPath(name)}' of the archive`);
    // Content whose holes were left out would be stored as another file's.
    if (header.type === 'S' || [...records.keys()].some((key) => key.startsWith('GNU.sparse.')))
      refuse('sparse files cannot be unpacked: pack the directory without --sparse');
    if (name.includes('\0') || link.includes('\0')) refuse('name contains NUL');
    const size = header.type === '1' ? 0 : (paxNumber(records, 'size', refuse) ?? header.size);
    this.#left = size;
    this.#padding = (BLOCK - (size % BLOCK)) % BLOCK;
    const time = paxTime(records, refuse) ?? { seconds: header.seconds, nanoseconds: 0 };
    return {
      ...header,
      ...time,
      name,
      link,
      size,
      uid: paxNumber(records, 'uid', refuse) ?? header.uid,
      gid: paxNumber(records, 'gid', refuse) ?? header.gid,
      attributes: paxAttributes(records),
    };
  }
}

function refuser(prefix: string): Refuse {
  return (problem) => {
    throw new EnvdError('invalid_argument', `${prefix}: ${problem}`);
  };
}
