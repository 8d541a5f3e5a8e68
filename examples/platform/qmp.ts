import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { createInterface } from 'node:readline';

interface Reply {
  readonly return?: unknown;
  readonly error?: { readonly desc: string };
  readonly event?: string;
}

/** The control socket of a qemu (QEMU Machine Protocol): one command at a time. */
export class Qmp implements Disposable {
  readonly #socket: Socket;
  readonly #replies: AsyncIterator<string>;

  private constructor(socket: Socket) {
    this.#socket = socket;
    this.#replies = createInterface({ input: socket })[Symbol.asyncIterator]();
  }

  /** Throws when no qemu listens. */
  static async connect(path: string): Promise<Qmp> {
    const socket = connect(path);
    await once(socket, 'connect');
    const qmp = new Qmp(socket);
    // The greeting.
    await qmp.#replies.next();
    await qmp.execute('qmp_capabilities');
    return qmp;
  }

  /** Returns the result of a command. Throws qemu's error. */
  async execute(command: string, args: object = {}): Promise<unknown> {
    this.#socket.write(`${JSON.stringify({ execute: command, arguments: args })}\n`);
    for (;;) {
      const { value, done } = await this.#replies.next();
      if (done) throw new Error(`${command}: qemu has ended`);
      const reply = JSON.parse(value) as Reply;
      if (reply.error) throw new Error(`${command}: ${reply.error.desc}`);
      if (reply.event === undefined) return reply.return;
    }
  }

  [Symbol.dispose](): void {
    this.#socket.destroy();
  }
}
