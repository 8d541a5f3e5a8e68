import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

/** How long a piece is delayed, in milliseconds. */
const DELAY_MS = 150;

/**
 * What happens to a piece of what one side sends: it comes late; only its beginning comes, then an end or a reset; only its
 * beginning, and nothing more in either direction; it comes twice; one of its bytes is changed.
 */
export const FAULTS = ['delay', 'cut', 'reset', 'stall', 'repeat', 'garble'] as const;

/** One fault of a connection. */
export interface RelayFault {
  readonly kind: (typeof FAULTS)[number];
  readonly from: 'client' | 'server';
  /** Which piece that side sends, of all connections, from 0. */
  readonly piece: number;
  /** Where in the piece: from 0 to 1. */
  readonly at: number;
}

/** A fault that waits for its piece. */
export interface Injection extends Disposable {
  readonly hasFired: boolean;
}

/** A TCP relay on loopback in front of a local port. */
export interface Relay extends AsyncDisposable {
  readonly port: number;
  /** Passes nothing on any more, in both directions, and closes nothing: like a cable that is cut. */
  cut(): void;
  /** Closes the connections; new ones are relayed. */
  reset(): void;
  /** Has this fault happen once, instead of an earlier one. */
  inject(fault: RelayFault): Injection;
}

interface Pair {
  readonly sides: Readonly<Record<RelayFault['from'], Socket>>;
  isStalled: boolean;
}

/** Called with what a client sends, before it is passed on; `endOthers` closes all connections but this one. */
type OnSent = (data: Buffer, endOthers: () => void) => void;

export async function startRelay(to: number, onSent: OnSent = () => {}): Promise<Relay> {
  const pairs = new Set<Pair>();
  let isCut = false;
  let injected: { readonly fault: RelayFault; left: number } | null = null;
  const faultOf = (from: RelayFault['from']): RelayFault | null => {
    if (injected?.fault.from !== from || injected.left-- > 0) return null;
    const { fault } = injected;
    injected = null;
    return fault;
  };
  const server = createServer((client) => {
    const pair: Pair = { sides: { client, server: connect(to, '127.0.0.1') }, isStalled: false };
    pairs.add(pair);
    client.on('data', (data: Buffer) => onSent(data, () => reset(pair)));
    for (const [from, other] of [['client', 'server'] as const, ['server', 'client'] as const]) {
      pair.sides[from].on('data', (data: Buffer) => {
        const fault = faultOf(from);
        if (isCut || pair.isStalled) return;
        if (fault) void spoil(data, fault, pair);
        else pair.sides[other].write(data);
      });
      // The other side may have reset it.
      pair.sides[from].on('error', () => {});
      pair.sides[from].once('close', () => {
        if (!pair.isStalled) pair.sides[other].destroy();
        if (pair.sides[other].destroyed) pairs.delete(pair);
      });
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const reset = (kept?: Pair) => {
    for (const pair of pairs) if (pair !== kept) for (const each of Object.values(pair.sides)) each.destroy();
  };
  return {
    port: (server.address() as AddressInfo).port,
    cut() {
      isCut = true;
    },
    reset: () => reset(),
    inject(fault) {
      const mine = { fault, left: fault.piece };
      injected = mine;
      return {
        get hasFired() {
          return injected !== mine;
        },
        [Symbol.dispose]() {
          if (injected === mine) injected = null;
        },
      };
    },
    async [Symbol.asyncDispose]() {
      reset();
      server.close();
    },
  };
}

/** Has a fault happen to a piece of what one side of a pair has sent. */
async function spoil(data: Buffer, { kind, from, at }: RelayFault, pair: Pair): Promise<void> {
  const to = pair.sides[from === 'client' ? 'server' : 'client'];
  const index = Math.min(Math.floor(at * data.length), data.length - 1);
  if (kind === 'delay') {
    // What comes behind it stays behind it.
    pair.sides[from].pause();
    await delay(DELAY_MS);
    pair.sides[from].resume();
  } else if (kind === 'garble') {
    data[index] = (data[index] ?? 0) ^ (1 + Math.floor(at * 254));
  } else if (kind === 'repeat') {
    to.write(data);
  } else {
    pair.isStalled = true;
    to.write(data.subarray(0, index), () => {
      if (kind === 'cut') for (const each of Object.values(pair.sides)) each.destroySoon();
      if (kind === 'reset') for (const each of Object.values(pair.sides)) each.resetAndDestroy();
    });
    return;
  }
  to.write(data);
}
