import { EventEmitter, once } from 'node:events';
import { number, type output as Output, record, strictObject, string, type ZodObject } from 'zod';
import { Failure } from '../output/failure.ts';
import { answer } from './answer.ts';
import { endingText, outputAnswer, runAnswer } from './command-answers.ts';
import { Ends } from './ends.ts';
import { bytesInput, integerInput, pathInput } from './inputs.ts';
import { NewestOutput } from './newest-output.ts';
import { RunningLine } from './running-line.ts';
import { defineTool, type Tool, type ToolCall } from './tool.ts';

/** Many clients give up a call after 60 s. */
const USUAL_SECONDS = 50;
const MOST_SECONDS = 3600;
/** Agent programs kill a server that has not ended some seconds after its input, in milliseconds. */
const LAST_GRACE_MS = 1_000;
/** Commands that run at the same time. */
const MAX_RUNNING = 16;
/** Commands that were started and are still known. Of those that have ended, the oldest one gives way. */
const MAX_STARTED = 32;
/** The newest output of each started command is kept, in bytes. */
const KEPT_BYTES = 1024 * 1024;

const LINE = {
  command: string()
    .min(1)
    .max(128 * 1024)
    .describe('a line of bash, or of sh where there is no bash'),
  cwd: pathInput("the working directory; default: the root, or the user's home").optional(),
  env: record(string(), string()).optional().describe('variables to set'),
};
const PROCESS = number().int().positive().describe('the process, as start_command has told it');

interface Started {
  readonly running: RunningLine;
  readonly output: NewestOutput;
  /** Emits `output` when some has come. */
  readonly news: EventEmitter;
  readonly line: string;
}

/** The tools that run commands, with the commands that they have started. */
export class CommandTools {
  readonly #started = new Map<number, Started>();
  readonly #all = new Set<RunningLine>();

  /** Stops everything that runs. */
  async stopAll(): Promise<void> {
    await Promise.all(Array.from(this.#all, (running) => running.stop(LAST_GRACE_MS)));
  }

  get tools(): readonly Tool[] {
    return [this.#run(), this.#start(), this.#read(), this.#stop()];
  }

  #run(): Tool {
    return defineTool({
      name: 'run_command',
      title: 'Run a command',
      description:
        'Runs a command to its end, and answers with its exit code and its output. Its standard input is empty. It is killed after timeout_seconds: start_command is for servers and long work.',
      input: strictObject({
        ...LINE,
        timeout_seconds: integerInput(
          1,
          MOST_SECONDS,
          USUAL_SECONDS,
          'the command is killed after this time',
        ),
        max_bytes: bytesInput(),
      }),
      does: 'runs',
      run: async (call) => {
        const { input, signal } = call;
        const streams = [new Ends(input.max_bytes / 2), new Ends(input.max_bytes / 2)] as const;
        const timeoutMs = input.timeout_seconds * 1000;
        const running = await this.#open(call, { timeoutMs }, (piece, isError) =>
          streams[isError ? 1 : 0].add(piece),
        );
        const cancel = () => void running.kill();
        signal.addEventListener('abort', cancel);
        if (signal.aborted) cancel();
        const ending = await running.ended.finally(() => signal.removeEventListener('abort', cancel));
        return runAnswer(running, ending, streams, input.timeout_seconds);
      },
    });
  }

  #start(): Tool {
    return defineTool({
      name: 'start_command',
      title: 'Start a command',
      description:
        'Starts a command that goes on, such as a server, and answers with its process. read_output has its output, and stop_command ends it. It is stopped when this server ends.',
      input: strictObject(LINE),
      does: 'runs',
      run: async (call) => {
        this.#forgetEnded();
        const output = new NewestOutput(KEPT_BYTES);
        const news = new EventEmitter();
        const running = await this.#open(call, {}, (piece) => {
          output.add(piece);
          news.emit('output');
        });
        const pid = await running.pid();
        this.#started.set(pid, { running, output, news, line: call.input.command });
        return answer(`Process ${pid} runs. read_output has its output, and stop_command ends it.`);
      },
    });
  }

  #read(): Tool {
    return defineTool({
      name: 'read_output',
      title: 'Read the output of a started command',
      description: `Answers with the output of a command of start_command, and says whether it still runs. Standard output and standard error are in the order in which they came. The newest ${KEPT_BYTES} bytes of each command are kept.`,
      input: strictObject({
        process: PROCESS,
        offset: number()
          .int()
          .min(0)
          .optional()
          .describe('read from this byte on; default: the newest output'),
        wait_seconds: integerInput(
          0,
          USUAL_SECONDS,
          0,
          'wait so long for output after the offset, or the end',
        ),
        max_bytes: bytesInput(),
      }),
      does: 'reads',
      run: async ({ input, signal }) => {
        const { running, output, news } = this.#find(input.process);
        const limit = AbortSignal.any([signal, AbortSignal.timeout(input.wait_seconds * 1000)]);
        const isNew = output.end > (input.offset ?? output.end);
        if (!isNew && !running.ending)
          await Promise.race([once(news, 'output', { signal: limit }), running.ended]).catch(() => {
            // Nothing has come in this time.
          });
        return outputAnswer(input, running, output);
      },
    });
  }

  #stop(): Tool {
    return defineTool({
      name: 'stop_command',
      title: 'Stop a started command',
      description:
        'Ends a command of start_command with everything that it has started: by SIGTERM, and after five seconds by SIGKILL.',
      input: strictObject({ process: PROCESS }),
      does: 'runs',
      run: async ({ input }) => {
        const { running } = this.#find(input.process);
        const ending = await running.stop();
        return answer(`${endingText(ending)}. read_output still has its output.`);
      },
    });
  }

  async #open(
    { connection, input, paths }: ToolCall<Output<ZodObject<typeof LINE>>>,
    limit: { readonly timeoutMs?: number },
    onOutput: (piece: Uint8Array, isError: boolean) => void,
  ): Promise<RunningLine> {
    if (this.#all.size >= MAX_RUNNING)
      throw new Failure('failed', `${MAX_RUNNING} commands run: stop one of them first`);
    const place = input.cwd ?? paths.root;
    const cwd = place === null ? undefined : await paths.resolve(connection, place);
    const running = new RunningLine(
      connection,
      { line: input.command, cwd, env: input.env, ...limit },
      onOutput,
    );
    this.#all.add(running);
    void running.ended.then(() => this.#all.delete(running));
    return running;
  }

  #find(pid: number): Started {
    const found = this.#started.get(pid);
    if (found) return found;
    const known = Array.from(this.#started, ([each, { line }]) => `${each} (${line.slice(0, 60)})`);
    throw new Failure(
      'not_found',
      `process ${pid} was not started here; known: ${known.join(', ') || 'none'}`,
    );
  }

  #forgetEnded(): void {
    for (const [pid, { running }] of this.#started)
      if (this.#started.size >= MAX_STARTED && running.ending) this.#started.delete(pid);
  }
}
