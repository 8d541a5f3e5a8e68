import { strict as assert } from 'node:assert';
import type { MessageInitShape } from '@bufbuild/protobuf';
import type { ProcessEvent, StartRequestSchema } from '../../gen/process/process_pb.js';
import { type Transcript, transcribe } from './transcript.ts';
import { MOST_BYTES } from './wire.ts';

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
  #bytes = 0;
  #came = Promise.withResolvers<void>();

  private constructor(events: Events) {
    this.ended = transcribe(events, (event, { pid }) => {
      this.pid = pid;
      if (event.case === 'data') this.#take(event.value.output.value ?? new Uint8Array());
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

  #take(bytes: Uint8Array): void {
    this.#output += Buffer.from(bytes);
    this.#bytes += bytes.length;
    assert(this.#bytes <= MOST_BYTES, `the output has more than ${MOST_BYTES} bytes`);
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
