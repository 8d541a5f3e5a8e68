import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import type { Codec } from '../../src/daemon/http/protocol/codec.ts';
import { drain, startRequest } from '../support/clients/raw-client.ts';
import { DAEMON_FLAGS } from './daemon.ts';
import { cpuOf } from './figures.ts';

export interface Load {
  readonly name: string;
  /** Bytes of an event. */
  readonly size: number;
  readonly count: number;
}

type Ports = Readonly<Record<'ours' | 'plain' | 'bare', number>>;

/** The servers of stream-server.ts, and what a load costs them in CPU. */
export class Contest implements Disposable {
  readonly pid: number;
  readonly #child: ChildProcess;
  readonly #ports: Ports;

  private constructor(child: ChildProcess, ports: Ports) {
    this.pid = child.pid ?? 0;
    this.#child = child;
    this.#ports = ports;
  }

  static async open(): Promise<Contest> {
    const child = fork(new URL('stream-server.ts', import.meta.url), { execArgv: DAEMON_FLAGS });
    const [ports] = (await once(child, 'message')) as [Ports];
    return new Contest(child, ports);
  }

  /** CPU time of the server for the load with that many readers of one source, in milliseconds. */
  stream(server: 'ours' | 'plain', { size, count }: Load, codec: Codec, readers = 1): Promise<number> {
    const config = { cmd: 'source', args: [String(size), String(count)], envs: { readers: String(readers) } };
    const request = startRequest({ process: config }, codec);
    const read = async () => {
      const { bytes, head, tail } = await drain(this.#ports[server], request);
      const complete = head.startsWith('HTTP/1.1 200') && tail.includes('exit status 0');
      if (!complete || bytes < size * count) throw new Error(`${bytes} bytes: ${head} … ${tail}`);
    };
    return cpuOf(this.pid, () => Promise.all(Array.from({ length: readers }, read)));
  }

  /** The same payloads over plain sockets. */
  bare({ size, count }: Load, readers = 1): Promise<number> {
    const read = async () => {
      const { bytes } = await drain(this.#ports.bare, Buffer.from(`${size} ${count}`));
      if (bytes !== size * count) throw new Error(`${bytes} bytes`);
    };
    return cpuOf(this.pid, () => Promise.all(Array.from({ length: readers }, read)));
  }

  [Symbol.dispose](): void {
    this.#child.disconnect();
  }
}
