import { readSync } from 'node:fs';
import { createMemory, readMemory } from '../memory/shared-memory.ts';
import { native } from '../system/native.ts';

/** A read takes at most this many bytes. */
const BUFFER_BYTES = 64 * 1024;
/** The reader's note holds the number of a pipe, and how many of its bytes have left it (u32 each). */
const NOTE_BYTES = 8;
const LENGTH_AT = 4;
/**
 * After the buffer follows a record for each pipe, by its number. It holds the process and the stream (u32 each), and
 * the offset of the next byte (f64).
 */
const OWNERS_AT = NOTE_BYTES + BUFFER_BYTES;
const OWNER_BYTES = 16;
const MOST_OWNERS = 65_536;
const OFFSET_AT = 8;

/** Bytes that a killed program had taken out of a pipe. */
export interface LeftBytes {
  readonly process: number;
  readonly stream: number;
  /** The offset of the first byte in its stream. */
  readonly offset: number;
  readonly bytes: Buffer;
}

/** The buffer of all reads in memory that survives this program, because what was read is in no pipe any more. */
export class ReadBuffer {
  readonly #memory = createMemory(OWNERS_AT + OWNER_BYTES * MOST_OWNERS);

  /** Returns the descriptor of the memory, or null if it cannot be handed over. */
  get descriptor(): number | null {
    return this.#memory.descriptor;
  }

  /** Returns the part that the reader writes: its note, and the bytes. */
  get room(): Buffer {
    return this.#memory.bytes.subarray(0, OWNERS_AT);
  }

  bytes(length: number): Buffer {
    return this.#memory.bytes.subarray(NOTE_BYTES, NOTE_BYTES + length);
  }

  own(pipe: number, { process, stream, offset }: Omit<LeftBytes, 'bytes'>): void {
    if (pipe >= MOST_OWNERS) return;
    const { bytes } = this.#memory;
    const at = OWNERS_AT + OWNER_BYTES * pipe;
    bytes.writeUInt32LE(process, at);
    bytes.writeUInt32LE(stream, at + 4);
    bytes.writeDoubleLE(offset, at + OFFSET_AT);
  }

  /** Notes that the bytes have been used. The order of the two writes matters if the program is killed between them. */
  taken(pipe: number, length: number): void {
    const { bytes } = this.#memory;
    bytes.writeUInt32LE(0, LENGTH_AT);
    if (pipe >= MOST_OWNERS) return;
    const at = OWNERS_AT + OWNER_BYTES * pipe + OFFSET_AT;
    bytes.writeDoubleLE(bytes.readDoubleLE(at) + length, at);
  }
}

/**
 * Returns what a killed program had read from a pipe and perhaps not used, or null if there is nothing. `transit` is
 * the descriptor of the pipe that bytes pass through. Throws read(2)'s errors.
 */
export function readInFlight(buffer: number, transit: number): LeftBytes | null {
  const memory = Buffer.alloc(OWNERS_AT);
  readMemory(buffer, memory, 0, OWNERS_AT);
  const pipe = memory.readUInt32LE(0);
  const pending = native.pendingBytes(transit);
  const length = pending || memory.readUInt32LE(LENGTH_AT);
  if (length === 0 || pipe >= MOST_OWNERS) return null;
  const bytes = memory.subarray(NOTE_BYTES, NOTE_BYTES + length);
  for (let read = 0; read < pending; ) read += readSync(transit, bytes, read, pending - read, null);
  const owner = Buffer.alloc(OWNER_BYTES);
  readSync(buffer, owner, 0, OWNER_BYTES, OWNERS_AT + OWNER_BYTES * pipe);
  const [process, stream] = [owner.readUInt32LE(0), owner.readUInt32LE(4)];
  return { process, stream, offset: owner.readDoubleLE(OFFSET_AT), bytes };
}
