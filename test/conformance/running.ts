import { strict as assert } from 'node:assert';
import type { MessageInitShape } from '@bufbuild/protobuf';
import type { ProcessEvent, StartRequestSchema } from '../../src/gen/process/process_pb.js';
import { type Transcript, transcribe } from '../support/clients/clients.ts';

export type StartInit = Exclude<MessageInitShape<typeof StartRequestSchema>, { $typeName: string }>;
type Events = AsyncIterable<{ event?: ProcessEvent | undefined }>;

/** A stream of a process that is read all the time. */
export class Running {
  pid = 0;
  hasEnded = false;
  /** What came, in this order: `start`, `data`, `keepalive`, `end`. */
  readonly kinds: string[] = [];
  /** Fails as the stream does. */
  readonly ended: Promise<Transcript>;
  #output = '';
  #came = Promise.withResolvers<void>();

  private constructor(events: Events) {
    this.ended = transcribe(events, (event, { pid }) => {
      this.pid = pid;
      if (event.case === 'data') this.#output += Buffer.from(event.value.output.value ?? []);
      this.kinds.push(event.case ?? '');
      this.#came.resolve();
      this.#came = Promise.withResolvers();
    });
    const end = () => {
      this.hasEnded = true;
    };
    this.ended.then(end, end);
  }

  /** Waits for the first event. Throws when the call is refused. */
  static async of(events: Events): Promise<Running> {
    const running = new Running(events);
    await running.#until(() => running.kinds.length > 0);
    assert.equal(running.kinds[0], 'start', 'the first event is start');
    return running;
  }

  /** All output so far, of whatever stream. */
  get output(): string {
    return this.#output;
  }

  /** Waits for this text in the output. */
  wrote(text: string): Promise<void> {
    return this.#until(() => this.#output.includes(text));
  }

  /** Waits for an event of this kind. */
  told(kind: string): Promise<void> {
    return this.#until(() => this.kinds.includes(kind));
  }

  async #until(isThere: () => boolean): Promise<void> {
    while (!isThere()) {
      const over = this.ended.then(() => true);
      if ((await Promise.race([this.#came.promise, over])) === true && !isThere())
        assert.fail(`the stream has ended with ${JSON.stringify(this.#output)}`);
    }
  }
}

/** The program and arguments of a shell script. */
export const sh = (script: string, ...args: readonly string[]) => ({
  cmd: '/bin/sh',
  args: ['-c', script, ...args],
  cwd: '/',
});
