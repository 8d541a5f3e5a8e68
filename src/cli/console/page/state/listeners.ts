import { callErrorOf } from '../wire/call-error.ts';
import type { DaemonClient } from '../wire/daemon-client.ts';
import type { ListenerMessage } from '../wire/messages.ts';
import { Observable } from './observable.ts';

/** Follows what listens in a guest. A page that is told less often misses nothing, because the daemon tells the differences. */
export class Listeners {
  /** By the JSON of each; null: not known, also from a daemon that does not tell. */
  readonly all = new Observable<ReadonlyMap<string, ListenerMessage> | null>(null);
  readonly #daemon: DaemonClient;
  #following: AbortController | null = null;
  #isTold = true;

  constructor(daemon: DaemonClient) {
    this.#daemon = daemon;
  }

  /** Follows until `leave`; a stream that has ended is begun again by the next call. */
  follow(): void {
    if (this.#following || !this.#isTold) return;
    const following = new AbortController();
    this.#following = following;
    this.#read(following.signal)
      .catch((error: unknown) => {
        if ([404, 405, 501].includes(callErrorOf(error).status)) this.#isTold = false;
      })
      .finally(() => {
        if (this.#following === following) this.#following = null;
      });
  }

  leave(): void {
    this.#following?.abort();
    this.#following = null;
  }

  async #read(signal: AbortSignal): Promise<void> {
    const listeners = new Map<string, ListenerMessage>();
    for await (const lines of this.#daemon.lines('/ports/stream', signal)) {
      for (const line of lines) {
        const { type, ...listener } = Object(JSON.parse(line)) as Readonly<Record<string, unknown>>;
        const key = JSON.stringify(listener);
        if (type === 'disappear') listeners.delete(key);
        else if (type === 'appear' && isListener(listener)) listeners.set(key, listener);
      }
      if (signal.aborted) return;
      this.all.set(new Map(listeners));
    }
  }
}

function isListener(value: object): value is ListenerMessage {
  const { port, address, pid, command } = value as Readonly<Record<string, unknown>>;
  return (
    Number.isSafeInteger(port) &&
    typeof address === 'string' &&
    (pid === null || Number.isSafeInteger(pid)) &&
    (command === null || typeof command === 'string')
  );
}
