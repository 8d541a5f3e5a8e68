// BPF maps, programs and links, each of which lives as long as its descriptor. Source: bpf(2), linux/bpf.h.
import { native } from './native.ts';

/** linux/bpf.h, enum bpf_cmd. */
const COMMAND = {
  mapCreate: 0,
  mapLookup: 1,
  mapUpdate: 2,
  mapDelete: 3,
  programLoad: 5,
  typeLoad: 18,
  linkCreate: 28,
} as const;
/** Of enum bpf_map_type. */
export const MAP = { hash: 1, socketMap: 15, socketStorage: 24 } as const;
/** enum bpf_prog_type */
export const PROGRAM = { socketOperations: 13, socketAddress: 18, socketLookup: 30 } as const;
/** enum bpf_attach_type */
export const ATTACH = { socketOperations: 3, getPeerName: 29, getSocketName: 31, socketLookup: 36 } as const;
/** BPF_F_NO_PREALLOC */
export const NO_PREALLOCATION = 1;
/** The part of union bpf_attr that is used, in bytes. */
const ATTRIBUTES = 72;
const WORD = 8;

/** Members of union bpf_attr by offset: numbers are 32 bits, bigints 64; of a buffer the address is stored. */
type Attributes = Readonly<Record<number, number | bigint | Buffer>>;

/** Throws bpf(2)'s errors: EPERM without the privilege, EINVAL and EACCES for what this kernel does not support or allow. */
function bpf(command: number, attributes: Attributes): number {
  const buffers: { readonly buffer: Buffer; readonly from: number }[] = [];
  const head = Buffer.alloc(ATTRIBUTES);
  let size = ATTRIBUTES;
  let pointers = 0;
  for (const [place, value] of Object.entries(attributes)) {
    const at = Number(place);
    if (typeof value === 'number') head.writeUInt32LE(value, at);
    else if (typeof value === 'bigint') head.writeBigUInt64LE(value, at);
    else {
      head.writeBigUInt64LE(BigInt(size), at);
      pointers |= 1 << (at / WORD);
      buffers.push({ buffer: value, from: size });
      size += Math.ceil(value.length / WORD) * WORD;
    }
  }
  const memory = Buffer.alloc(size);
  head.copy(memory);
  for (const { buffer, from } of buffers) buffer.copy(memory, from);
  const result = native.bpf(command, memory, ATTRIBUTES, pointers);
  for (const { buffer, from } of buffers) memory.copy(buffer, 0, from);
  return result;
}

export interface MapPlan {
  /** At most 15 characters, shown by bpftool. */
  readonly name: string;
  readonly type: number;
  /** Size of a key in bytes; `value`: size of a value. */
  readonly key: number;
  readonly value: number;
  readonly entries: number;
  readonly flags?: number;
  /** Type of key and value, from `loadIntegerType`. */
  readonly types?: number;
}

/** Returns a descriptor, which is close-on-exec like all here. Throws bpf(2)'s errors. */
export function createMap({ name, type, key, value, entries, flags = 0, types }: MapPlan): number {
  const typed = types === undefined ? {} : { 48: types, 52: 1, 56: 1 };
  const sizes = { 0: type, 4: key, 8: value, 12: entries, 16: flags };
  return bpf(COMMAND.mapCreate, { ...sizes, ...nameAt(28, name), ...typed });
}

/** Throws ENOENT without such an entry. */
export function lookUp(map: number, key: Buffer): bigint {
  const value = Buffer.alloc(WORD);
  bpf(COMMAND.mapLookup, { 0: map, 8: key, 16: value });
  return value.readBigUInt64LE();
}

/** Adds or replaces. Throws E2BIG when the map is full. */
export function update(map: number, key: Buffer, value: Buffer): void {
  bpf(COMMAND.mapUpdate, { 0: map, 8: key, 16: value });
}

/** Throws ENOENT without such an entry. */
export function remove(map: number, key: Buffer): void {
  bpf(COMMAND.mapDelete, { 0: map, 8: key });
}

/** Throws EACCES or EINVAL when the kernel's verifier refuses it. */
export function loadProgram(name: string, type: number, attach: number, instructions: Buffer): number {
  const count = instructions.length / WORD;
  const license = Buffer.from('Apache-2.0\0');
  return bpf(COMMAND.programLoad, {
    0: type,
    4: count,
    8: instructions,
    16: license,
    68: attach,
    ...nameAt(48, name),
  });
}

/** Attaches a program to a network namespace or a cgroup, beside those of others, as long as the descriptor is open. */
export function createLink(program: number, target: number, attach: number): number {
  return bpf(COMMAND.linkCreate, { 0: program, 4: target, 8: attach });
}

/** BTF that describes a signed 32-bit integer as type 1, which some maps need. Source: Documentation/bpf/btf.rst. */
export function loadIntegerType(): number {
  const strings = Buffer.from('\0int\0');
  const [magic, version, kind, signed] = [0xeb9f, 1, 1 << 24, 1 << 24];
  const head = [magic | (version << 16), 24, 0, 16, 16, strings.length];
  const integer = [1, kind, 4, signed | 32];
  const description = Buffer.concat([Buffer.from(Uint32Array.from([...head, ...integer]).buffer), strings]);
  return bpf(COMMAND.typeLoad, { 0: description, 16: description.length });
}

/** As 64-bit words. */
function nameAt(place: number, name: string): Attributes {
  const words = Buffer.alloc(16);
  words.write(name.slice(0, 15), 'latin1');
  return {
    [place]: words.readUInt32LE(0),
    [place + 4]: words.readUInt32LE(4),
    [place + 8]: words.readUInt32LE(8),
    [place + 12]: words.readUInt32LE(12),
  };
}
