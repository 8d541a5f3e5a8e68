import { Code, ConnectError } from '@connectrpc/connect';
import type { ProcessEvent, ProcessEvent_EndEvent } from '../../../src/gen/process/process_pb.js';
import { byPid, type Clients } from './clients.ts';

type Take = (stream: 'stdout' | 'stderr' | 'pty', bytes: Uint8Array) => void;

/** A client that follows a process, and resumes when the daemon is away or is replaced. */
export class Following {
  readonly parts = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[], pty: [] as Uint8Array[] };
  /** How often the stream was resumed. */
  resumed = 0;
  readonly #offsets = { stdout: 0n, stderr: 0n, pty: 0n };
  readonly #clients: Clients;
  readonly #pid: number;
  readonly #take: Take;

  /** `take`: gets the output; without it that is in `parts`. */
  constructor(clients: Clients, pid: number, take?: Take) {
    this.#clients = clients;
    this.#pid = pid;
    this.#take = take ?? ((stream, bytes) => this.parts[stream].push(bytes));
  }

  /** Follows it to its end. Throws when output is missing, and when the process is not known any more. */
  async toEnd(): Promise<ProcessEvent_EndEvent> {
    for (;;) {
      try {
        const end = await this.#follow();
        if (end) return end;
      } catch (error) {
        const { code, rawMessage } = ConnectError.from(error);
        const isAway = [Code.Unavailable, Code.Aborted, Code.Unknown].includes(code);
        if (!isAway && rawMessage !== 'write EPIPE') throw error;
      }
      this.resumed += 1;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  async #follow(): Promise<ProcessEvent_EndEvent | null> {
    const request = { process: byPid(this.#pid), resumeFrom: { ...this.#offsets } };
    for await (const { event } of this.#clients.process.connect(request)) {
      const told: ProcessEvent['event'] | undefined = event?.event;
      if (told?.case === 'gap') throw new Error('there is a gap');
      if (told?.case === 'end') return told.value;
      if (told?.case !== 'data' || told.value.output.case === undefined) continue;
      const { case: stream, value } = told.value.output;
      this.#take(stream, value);
      this.#offsets[stream] += BigInt(value.length);
    }
    return null;
  }
}
