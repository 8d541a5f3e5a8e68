// Instructions of eBPF. Source: RFC 9669.

/**
 * A register. `R0` has results; calls overwrite the arguments, `R1` to `R5`; `R6` to `R9` are kept; `FRAME` is the end
 * of the stack.
 */
export type Register = number;
export const [R0, R1, R2, R3, R4, R6, R7, R8, FRAME] = [0, 1, 2, 3, 4, 6, 7, 8, 10] as const;

interface Instruction {
  readonly code: number;
  readonly to?: Register;
  readonly from?: Register;
  readonly offset?: number;
  readonly value?: number;
  /** Where a jump goes. */
  readonly label?: string;
}

/** An instruction, or a label that jumps go to. */
export type Line = Instruction | string;

const SIZES = { 32: 0x00, 64: 0x18 } as const;
type Bits = keyof typeof SIZES;

type Operation<Values extends readonly unknown[]> = (...values: Values) => Line;
const ofRegisters = (code: number): Operation<[to: Register, from: Register]> => {
  return (to, from) => ({ code, to, from });
};
const ofValue = (code: number): Operation<[to: Register, value: number]> => {
  return (to, value) => ({ code, to, value });
};
const toMemory = (code: number): Operation<[to: Register, offset: number, from: Register]> => {
  return (to, offset, from) => ({ code, to, from, offset });
};
const branch = (code: number): Operation<[to: Register, value: number, label: string]> => {
  return (to, value, label) => ({ code, to, value, label });
};

export const copy = ofRegisters(0xbf);
export const set = ofValue(0xb7);
export const add = ofValue(0x07);
export function load(to: Register, from: Register, offset: number, bits: Bits = 32): Line {
  return { code: 0x61 | SIZES[bits], to, from, offset };
}
/** Of 32 bits. */
export const store = toMemory(0x63);
/** Atomic, of 64 bits. */
export const addTo = toMemory(0xdb);
export const jump = (label: string): Line => ({ code: 0x05, label });
export const ifEqual = branch(0x15);
export const ifOther = branch(0x55);
export function ifOtherThan(to: Register, from: Register, label: string): Line {
  return { code: 0x5d, to, from, label };
}
/** A function of the kernel, enum bpf_func_id. */
export const call = (value: number): Line => ({ code: 0x85, value });
export const exit: Line = { code: 0x95 };

/** Sets a 64-bit number, which takes two instructions. */
export function setWide(to: Register, value: bigint): Line[] {
  return [
    { code: 0x18, to, value: Number(BigInt.asIntN(32, value)) },
    { code: 0, value: Number(BigInt.asIntN(32, value >> 32n)) },
  ];
}

/** The address of a map, by its descriptor. */
export function setMap(to: Register, descriptor: number): Line[] {
  return [
    { code: 0x18, to, from: 1, value: descriptor },
    { code: 0, value: 0 },
  ];
}

/** Throws a RangeError for an undefined label. */
export function assemble(lines: readonly Line[]): Buffer {
  const labels = new Map<string, number>();
  const instructions: Instruction[] = [];
  for (const line of lines) {
    if (typeof line === 'string') labels.set(line, instructions.length);
    else instructions.push(line);
  }
  return Buffer.concat(instructions.map((instruction, at) => encode(instruction, at, labels)));
}

function encode(
  { code, to = 0, from = 0, offset = 0, value = 0, label }: Instruction,
  at: number,
  labels: ReadonlyMap<string, number>,
): Buffer {
  const bytes = Buffer.alloc(8);
  bytes[0] = code;
  bytes[1] = (from << 4) | to;
  const target = label === undefined ? offset : (labels.get(label) ?? Number.NaN) - at - 1;
  if (Number.isNaN(target)) throw new RangeError(`no label '${label}'`);
  bytes.writeInt16LE(target, 2);
  bytes.writeInt32LE(value, 4);
  return bytes;
}
