import type { MessageInitShape } from '@bufbuild/protobuf';
import { EnvdError, messageOf } from '../../../base/errors.ts';
import { Filesystem, type ReplaceResponseSchema } from '../../../gen/filesystem/filesystem_pb.js';
import { type UnaryRpc, unaryRpc } from '../../http/protocol/connect-unary.ts';
import { callerOf, timeoutOf } from '../../http/protocol/request.ts';
import { bytePath } from '../../linux/paths/byte-path.ts';
import { isAtOrBelow } from '../../linux/paths/mounts.ts';
import type { WriteGate } from '../../services/pause/write-gate.ts';
import { changeContent } from './change-content.ts';
import { throwFailure } from './find-stream.ts';
import { createJob, type SearchSource } from './jobs.ts';
import type { ChangedContent, ReplaceTotals, SearchJob } from './program/protocol.ts';
import type { SearchProcess, SearchProcesses } from './search-processes.ts';

const MAX_REPLACEMENT_BYTES = 1024 * 1024;

type Response = MessageInitShape<typeof ReplaceResponseSchema>;

/** Implements Replace. The program has the new contents of all files before the first file is changed. */
export function replaceRpc(source: SearchSource, gate: WriteGate, processes: SearchProcesses): UnaryRpc {
  const messages = { ignoreUnknownFields: false, isOwnJson: false };
  return unaryRpc(Filesystem.method.replace, messages, async (request, call) => {
    const user = callerOf(call, source.guest);
    const { replacement, expectedCount, dryRun } = request;
    if (request.content === '') throw new EnvdError('invalid_argument', 'content is empty');
    if (Buffer.byteLength(replacement) > MAX_REPLACEMENT_BYTES)
      throw new EnvdError('invalid_argument', `replacement is longer than ${MAX_REPLACEMENT_BYTES} bytes`);
    if (!dryRun) gate.assertOpen();
    const task = { kind: 'replace', replacement, expected: expectedCount ?? null, dryRun } as const;
    const timeoutMs = timeoutOf(call.request.headers);
    const job = await createJob(request, task, { user, timeoutMs }, source);
    call.subject = { path: job.shown };
    using process = await processes.start(job, call.signal);
    return await new ChangedFiles(job, process, source, gate).receive(dryRun, call.signal);
  });
}

class ChangedFiles {
  readonly #job: SearchJob;
  readonly #process: SearchProcess;
  readonly #source: SearchSource;
  readonly #gate: WriteGate;
  readonly #files: { path: string; count: number; diff: string }[] = [];

  constructor(job: SearchJob, process: SearchProcess, source: SearchSource, gate: WriteGate) {
    this.#job = job;
    this.#process = process;
    this.#source = source;
    this.#gate = gate;
  }

  /** Changes the files that the program names, one after the other, until the totals arrive. */
  async receive(dryRun: boolean, signal: AbortSignal): Promise<Response> {
    for (;;) {
      signal.throwIfAborted();
      const line = (await this.#process.output.line()) ?? (await this.#process.failEarly());
      throwFailure(line);
      const told: ChangedContent | ReplaceTotals = JSON.parse(line);
      if (!('path' in told)) return { files: this.#files, ...numbersOf(told) };
      this.#process.keep();
      const change = changeFrom(told, this.#job);
      if (!dryRun) await this.#change(change);
      this.#files.push({ path: change.shown, count: change.count, diff: change.diff });
    }
  }

  async #change(change: ChangedContent): Promise<void> {
    const { lanes } = this.#source.entries;
    const user = this.#job.rights?.uid ?? null;
    const content = this.#process.output.bytes(change.length);
    try {
      await this.#gate.run(() => changeContent(change, content, user === 0 ? null : user, lanes));
    } catch (error) {
      const done = this.#files.length;
      if (done === 0 || !(error instanceof EnvdError)) throw error;
      throw new EnvdError(error.kind, `${messageOf(error)}; ${done} files before it were changed`, {
        cause: error,
      });
    }
  }
}

function numbersOf({ count, skipped, unreadable }: ReplaceTotals): ReplaceTotals {
  if (![count, skipped, unreadable].every(Number.isSafeInteger)) throw malformed();
  return { count, skipped, unreadable };
}

function changeFrom(told: ChangedContent, { root, shown: top }: SearchJob): ChangedContent {
  const { path, shown, count, diff, length, version } = told;
  const texts = [path, shown, diff, version].every((text) => typeof text === 'string');
  if (!texts || ![count, length].every(Number.isSafeInteger)) throw malformed();
  if (!isAtOrBelow(root, path) || !isAtOrBelow(top, shown) || bytePath(path).includes('/../'))
    throw malformed();
  return { path, shown, count, diff, length, version };
}

function malformed(): EnvdError {
  return new EnvdError('internal', 'a search has written something else than a change');
}
