import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { until } from '../until.ts';

interface Reply {
  readonly return?: unknown;
  readonly error?: { readonly class: string; readonly desc: string };
  readonly event?: string;
}

/** The QMP socket of a qemu: one command at a time. */
export class Qmp implements Disposable {
  readonly #socket: Socket;
  readonly #replies: AsyncIterator<string>;

  private constructor(socket: Socket) {
    this.#socket = socket;
    this.#replies = createInterface({ input: socket })[Symbol.asyncIterator]();
  }

  /** Connects as soon as the socket exists. */
  static async connect(path: string): Promise<Qmp> {
    const qmp = new Qmp(await until(`qemu listens on '${path}'`, () => connected(path)));
    await qmp.#replies.next(); // the greeting
    await qmp.execute('qmp_capabilities');
    return qmp;
  }

  /** Returns the result of a command. Throws qemu's error. */
  async execute(command: string, args: object = {}): Promise<unknown> {
    this.#socket.write(`${JSON.stringify({ execute: command, arguments: args })}\n`);
    for (;;) {
      const { value, done } = await this.#replies.next();
      if (done) throw new Error(`'${command}': qemu has gone`);
      const reply = JSON.parse(value) as Reply;
      if (reply.error) throw new Error(`'${command}': ${reply.error.desc}`);
      if (reply.event === undefined) return reply.return;
    }
  }

  [Symbol.dispose](): void {
    this.#socket.destroy();
  }
}

/** Null when the socket does not accept connections. */
async function connected(path: string): Promise<Socket | null> {
  const socket = connect(path);
  try {
    await once(socket, 'connect');
    return socket;
  } catch {
    return null;
  }
}
