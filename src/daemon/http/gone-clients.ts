import type { Socket } from 'node:net';
import type { Connections } from '../../base/http/connections.ts';
import { nameOfConnection } from '../linux/network/unanswered.ts';

/** How often the daemon checks for clients that are gone, in milliseconds. */
const CHECK_MS = 10_000;
/** A client that acknowledges nothing for so long is gone, in milliseconds. With a check, this is less than a minute. */
const SILENCE_MS = 45_000;

/** Returns how long each peer that owes an answer has acknowledged nothing, see `readUnanswered`. */
type ReadSilence = () => Promise<ReadonlyMap<string, number>>;

/**
 * Ends the connections of clients that have gone without a word while bytes were under way to them. A client that lives and reads
 * nothing keeps its connection, because its kernel acknowledges the probes of the closed window. The kernel sends the probes
 * farther and farther apart, so a long silence alone means nothing: two checks in succession must find the same attempt without
 * an answer. Keep-alive ends idle connections.
 */
export class GoneClients implements Disposable {
  readonly #connections: Connections;
  readonly #read: ReadSilence;
  readonly #onFailure: (error: unknown) => void;
  readonly #timer: NodeJS.Timeout;
  #suspects: ReadonlySet<Socket> = new Set();
  #isChecking = false;

  /** `onFailure` is called for each check that fails. */
  constructor(connections: Connections, read: ReadSilence, onFailure: (error: unknown) => void) {
    this.#connections = connections;
    this.#read = read;
    this.#onFailure = onFailure;
    this.#timer = setInterval(() => void this.#check(), CHECK_MS).unref();
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  async #check(): Promise<void> {
    if (this.#isChecking || this.#connections.open === 0) return;
    this.#isChecking = true;
    try {
      this.#judge(await this.#read());
    } catch (error) {
      this.#onFailure(error);
    } finally {
      this.#isChecking = false;
    }
  }

  #judge(silences: ReadonlyMap<string, number>): void {
    const suspects = new Set<Socket>();
    for (const socket of silences.size > 0 ? this.#connections.sockets() : []) {
      const silenceMs = silences.get(nameOfConnection(socket));
      if (silenceMs === undefined) continue;
      suspects.add(socket);
      if (silenceMs >= SILENCE_MS && this.#suspects.has(socket)) socket.destroy();
    }
    this.#suspects = suspects;
  }
}
