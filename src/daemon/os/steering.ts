import { closeSync, constants, openSync } from 'node:fs';
import { isSystemError } from '../../base/errors.ts';
import {
  ATTACH,
  createLink,
  createMap,
  loadIntegerType,
  loadProgram,
  lookUp,
  MAP,
  NO_PREALLOCATION,
  PROGRAM,
  remove,
  update,
} from './bpf.ts';
import { native } from './native.ts';
import { lookupProgram, nameProgram, operationsProgram, type SteeringMaps } from './steering-programs.ts';

const { O_RDONLY, O_DIRECTORY } = constants;
const PORTS = 65_536;
/** Of a count of connections, in bytes. */
const COUNT = 8;
/** linux/socket.h */
const SO_NETNS_COOKIE = 71;
const NAMESPACE = '/proc/self/ns/net';

/** Descriptors that a later program of this process goes on with: what listens, and which connections are steered. */
export type SteeringState = Pick<SteeringMaps, 'listeners' | 'marks'>;

/**
 * Connections to a port of the guest's address which the kernel itself gives to what listens at the same port of 127.0.0.1,
 * and which look to that as if they came from 127.0.0.1 (docs/decisions/071-kernel-steering.md). Ends with its descriptors.
 */
export class Steering implements Disposable {
  readonly #maps: SteeringMaps;
  readonly #owned: DisposableStack;
  /** Their keys. */
  readonly #forwards = new Map<string, Buffer>();
  /** Connections of forwards that have ended. */
  #ended = 0;

  private constructor(maps: SteeringMaps, owned: DisposableStack) {
    this.#maps = maps;
    this.#owned = owned;
  }

  /**
   * What begins to listen from now on can be steered to. `cgroup`: the root of cgroup v2; `most`: forwards; `kept`: of an
   * earlier program, which are closed in the end. Throws bpf(2)'s errors where the kernel cannot, or the daemon must not.
   */
  static open(cgroup: string, most: number, kept: SteeringState | null = null): Steering {
    using owned = new DisposableStack();
    const own = (descriptor: number) => owned.adopt(descriptor, closeSync);
    if (kept) for (const descriptor of Object.values(kept)) own(descriptor);
    const forwards = { name: 'envd_forwards', type: MAP.hash, key: 8, value: COUNT, flags: NO_PREALLOCATION };
    const entries = Math.min(most, PORTS);
    const maps = { forwards: own(createMap({ ...forwards, entries })), ...(kept ?? createKept(own)) };
    attach(maps, cgroup, own);
    return new Steering(maps, owned.move());
  }

  /** Connections that were steered, of all forwards. */
  get accepted(): number {
    return [...this.#forwards.values()].reduce((sum, key) => sum + this.#countOf(key), this.#ended);
  }

  /** Throws E2BIG for more forwards than planned. */
  add(address: string, port: number): void {
    if (this.#owned.disposed) return;
    const key = keyOf(address, port);
    update(this.#maps.forwards, key, Buffer.alloc(COUNT));
    this.#forwards.set(`${address}:${port}`, key);
  }

  /** Connections go on. Idempotent. */
  remove(address: string, port: number): void {
    const name = `${address}:${port}`;
    const key = this.#forwards.get(name);
    if (!key) return;
    this.#forwards.delete(name);
    this.#ended += this.#countOf(key);
    remove(this.#maps.forwards, key);
  }

  /** Whether what listens at this port of 127.0.0.1 is known: otherwise nothing is steered to it. */
  hasListener(port: number): boolean {
    if (this.#owned.disposed) return false;
    const key = Buffer.from(Uint32Array.of(port).buffer);
    try {
      lookUp(this.#maps.listeners, key);
      return true;
    } catch (error) {
      if (isSystemError(error) && error.code === 'ENOENT') return false;
      throw error;
    }
  }

  /** The descriptors stay this object's. */
  handOver(): SteeringState {
    const { listeners, marks } = this.#maps;
    return { listeners, marks };
  }

  /** Nothing is steered any more; connections go on, and show their own addresses. Idempotent. */
  [Symbol.dispose](): void {
    this.#forwards.clear();
    this.#owned.dispose();
  }

  #countOf(key: Buffer): number {
    return Number(lookUp(this.#maps.forwards, key));
  }
}

/** As in memory: an address as it is sent, and a number of 32 bits. */
function keyOf(address: string, port: number): Buffer {
  const key = Buffer.from([...address.split('.').map(Number), 0, 0, 0, 0]);
  key.writeUInt32LE(port, 4);
  return key;
}

function createKept(own: (descriptor: number) => number): SteeringState {
  using needed = new DisposableStack();
  const types = needed.adopt(loadIntegerType(), closeSync);
  const marks = { name: 'envd_steered', type: MAP.socketStorage, key: 4, value: 4, entries: 0, types };
  const listeners = { name: 'envd_listeners', type: MAP.socketMap, key: 4, value: 8, entries: PORTS };
  return {
    marks: own(createMap({ ...marks, flags: NO_PREALLOCATION })),
    listeners: own(createMap(listeners)),
  };
}

/** Connections are looked up last, when they can be marked. */
function attach(maps: SteeringMaps, cgroupPath: string, own: (descriptor: number) => number): void {
  // A link holds its program and what that is attached to.
  using needed = new DisposableStack();
  const need = (descriptor: number) => needed.adopt(descriptor, closeSync);
  const cgroup = need(openSync(cgroupPath, O_RDONLY | O_DIRECTORY));
  const namespace = need(openSync(NAMESPACE, O_RDONLY));
  const link = (name: string, type: number, kind: number, instructions: Buffer, target: number) =>
    own(createLink(need(loadProgram(name, type, kind, instructions)), target, kind));
  const { getPeerName, getSocketName, socketOperations, socketLookup } = ATTACH;
  const names = nameProgram(maps);
  link('envd_peer_name', PROGRAM.socketAddress, getPeerName, names, cgroup);
  link('envd_sock_name', PROGRAM.socketAddress, getSocketName, names, cgroup);
  const operations = operationsProgram(maps, ownNamespace());
  link('envd_listening', PROGRAM.socketOperations, socketOperations, operations, cgroup);
  link('envd_steering', PROGRAM.socketLookup, socketLookup, lookupProgram(maps), namespace);
}

/** The cookie of the network namespace, by any socket in it. Throws ENOPROTOOPT before Linux 5.14. */
function ownNamespace(): bigint {
  const socket = native.openSocketDiagnosis();
  try {
    return native.readSocketOption(socket, SO_NETNS_COOKIE);
  } finally {
    closeSync(socket);
  }
}
