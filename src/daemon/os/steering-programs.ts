// What the kernel runs for steered connections (docs/decisions/071-kernel-steering.md). Each gets its context in R1. Source:
// linux/bpf.h, bpf-helpers(7).
import {
  add,
  addTo,
  assemble,
  call,
  copy,
  exit,
  FRAME,
  ifEqual,
  ifOther,
  ifOtherThan,
  jump,
  type Line,
  load,
  R0,
  R1,
  R2,
  R3,
  R4,
  R6,
  R7,
  R8,
  set,
  setMap,
  setWide,
  store,
} from './bpf-assembler.ts';

const [AF_INET, IPPROTO_TCP, TCP_LISTEN] = [2, 6, 10] as const;
/** In memory. */
const LOOPBACK = 0x0100007f;
/** enum bpf_func_id */
const LOOK_UP = 1;
const SOCK_MAP_UPDATE = 53;
const SK_RELEASE = 86;
const SK_STORAGE_GET = 107;
const NETNS_COOKIE = 122;
const SK_ASSIGN = 124;
const CREATE = 1;
/** Members of the contexts, in bytes. */
const LOOKUP = { family: 8, protocol: 12, address: 40, port: 60 } as const;
const OPERATION = { kind: 0, family: 20, address: 28, port: 68, socket: 184 } as const;
const NAME = { address: 4, socket: 64 } as const;
/** struct bpf_sock */
const SOCKET = { device: 0, address: 24, state: 72 } as const;
/** Kinds of struct bpf_sock_ops. */
const [PASSIVE_ESTABLISHED, LISTEN] = [5, 11] as const;
/** On the stack: the address and the port, the key of a forward; the port is that of a listener. */
const [KEY, PORT] = [-8, -4] as const;

/** Descriptors of maps. */
export interface SteeringMaps {
  /** By address and port: how many connections have been steered. */
  readonly forwards: number;
  /** By port: what listens at 127.0.0.1. */
  readonly listeners: number;
  /** Steered connections. */
  readonly marks: number;
}

/** Gives a new connection at the address of a forward to the listener, if it is there; it is the namespace's own. */
export function lookupProgram({ forwards, listeners }: SteeringMaps): Buffer {
  return assemble([
    copy(R6, R1),
    ...[load(R2, R6, LOOKUP.protocol), ifOther(R2, IPPROTO_TCP, 'pass')],
    ...[load(R2, R6, LOOKUP.family), ifOther(R2, AF_INET, 'pass')],
    ...lookUp(forwards, LOOKUP, 'pass'),
    copy(R7, R0),
    ...[...setMap(R1, listeners), copy(R2, FRAME), add(R2, PORT), call(LOOK_UP), ifEqual(R0, 0, 'pass')],
    ...[copy(R8, R0)],
    // It may have been shut down since, or bound to a device, to which answers would go.
    ...[load(R2, R8, SOCKET.state), ifOther(R2, TCP_LISTEN, 'release')],
    ...[load(R2, R8, SOCKET.address), ifOther(R2, LOOPBACK, 'release')],
    ...[load(R2, R8, SOCKET.device), ifOther(R2, 0, 'release')],
    ...[copy(R1, R6), copy(R2, R8), set(R3, 0), call(SK_ASSIGN), ifOther(R0, 0, 'release')],
    ...[set(R1, 1), addTo(R7, 0, R1)],
    ...['release', copy(R1, R8), call(SK_RELEASE)],
    ...['pass', set(R0, 1), exit],
  ]);
}

/**
 * Keeps what begins to listen at 127.0.0.1 in the network namespace, and marks what arrives at a forward.
 * `namespace`: its cookie.
 */
export function operationsProgram({ forwards, listeners, marks }: SteeringMaps, namespace: bigint): Buffer {
  return assemble([
    copy(R6, R1),
    ...[load(R7, R6, OPERATION.kind), ifEqual(R7, LISTEN, 'begin'), ifOther(R7, PASSIVE_ESTABLISHED, 'end')],
    'begin',
    ...[load(R2, R6, OPERATION.family), ifOther(R2, AF_INET, 'end')],
    ...[copy(R1, R6), call(NETNS_COOKIE), ...setWide(R1, namespace), ifOtherThan(R0, R1, 'end')],
    ifEqual(R7, LISTEN, 'listen'),
    ...lookUp(forwards, OPERATION, 'end'),
    ...[load(R2, R6, OPERATION.socket, 64), ifEqual(R2, 0, 'end')],
    ...[...setMap(R1, marks), set(R3, 0), set(R4, CREATE), call(SK_STORAGE_GET), jump('end')],
    'listen',
    ...[load(R2, R6, OPERATION.address), ifOther(R2, LOOPBACK, 'end')],
    ...[load(R2, R6, OPERATION.socket, 64), ifEqual(R2, 0, 'end')],
    ...[load(R2, R2, SOCKET.device), ifOther(R2, 0, 'end')],
    ...[load(R2, R6, OPERATION.port), store(FRAME, PORT, R2)],
    ...[
      copy(R1, R6),
      ...setMap(R2, listeners),
      copy(R3, FRAME),
      add(R3, PORT),
      set(R4, 0),
      call(SOCK_MAP_UPDATE),
    ],
    ...['end', set(R0, 1), exit],
  ]);
}

/** Tells 127.0.0.1 instead of an address of a marked connection: of getpeername(2), getsockname(2) and accept(2). */
export function nameProgram({ marks }: SteeringMaps): Buffer {
  return assemble([
    ...[copy(R6, R1), load(R2, R6, NAME.socket, 64), ifEqual(R2, 0, 'end')],
    ...[...setMap(R1, marks), set(R3, 0), set(R4, 0), call(SK_STORAGE_GET), ifEqual(R0, 0, 'end')],
    // From a register: Linux 6.1 refuses a constant here.
    ...[set(R1, LOOPBACK), store(R6, NAME.address, R1)],
    ...['end', set(R0, 1), exit],
  ]);
}

/** The forward of the context's own address and port in R0, or a jump. */
function lookUp(
  forwards: number,
  members: { readonly address: number; readonly port: number },
  label: string,
): Line[] {
  return [
    ...[load(R2, R6, members.address), store(FRAME, KEY, R2)],
    ...[load(R2, R6, members.port), store(FRAME, PORT, R2)],
    ...[...setMap(R1, forwards), copy(R2, FRAME), add(R2, KEY), call(LOOK_UP), ifEqual(R0, 0, label)],
  ];
}
