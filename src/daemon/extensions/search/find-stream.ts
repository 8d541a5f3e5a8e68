import { create, fromJsonString } from '@bufbuild/protobuf';
import { EnvdError, type ErrorKind } from '../../../base/errors.ts';
import type { Feed } from '../../../base/feed.ts';
import {
  Filesystem,
  type FindRequestSchema,
  type FindResponse,
  FindResponseSchema,
} from '../../../gen/filesystem/filesystem_pb.js';
import { encodeFrame } from '../../http/protocol/codec.ts';
import type { EventStream } from '../../http/protocol/event-stream.ts';
import { callerOf } from '../../http/protocol/request.ts';
import { createJob, type SearchSource } from './jobs.ts';
import type { SearchProcess, SearchProcesses } from './search-processes.ts';

const DEFAULT_RESULTS = 10_000;
const MAX_RESULTS = 100_000;
const MAX_CONTEXT = 20;
/** This many results are decoded and encoded in one turn of the event loop. */
const AT_ONCE = 64;

/** Implements Find: sends each result when the program finds it, then the end event. */
export function findStream(
  source: SearchSource,
  processes: SearchProcesses,
): EventStream<FindResponse, typeof FindRequestSchema, typeof FindResponseSchema> {
  return {
    method: Filesystem.method.find,
    ignoreUnknownFields: false,
    ownsTimeout: false,
    async open(request, call, timeoutMs) {
      const user = callerOf(call, source.guest);
      const context = atMost('context', request.context, MAX_CONTEXT);
      const maxResults = atMost('max_results', request.maxResults, MAX_RESULTS) || DEFAULT_RESULTS;
      const job = await createJob(
        request,
        { kind: 'find', context, maxResults },
        { user, timeoutMs },
        source,
      );
      call.subject = { path: job.shown };
      return new FindFeed(await processes.start(job, call.signal));
    },
    message: (response) => response,
    addFrame: (response, codec, batch) => batch.add(encodeFrame(FindResponseSchema, response, codec)),
    isLast: ({ event }) => event.case === 'end',
    keepalive: create(FindResponseSchema, { event: { case: 'keepalive', value: {} } }),
  };
}

function atMost(name: string, value: number, most: number): number {
  if (value <= most) return value;
  throw new EnvdError('invalid_argument', `${name} must be at most ${most}, not ${value}`);
}

class FindFeed implements Feed<FindResponse> {
  readonly #process: SearchProcess;
  #isComplete = false;

  constructor(process: SearchProcess) {
    this.#process = process;
  }

  async next(): Promise<FindResponse[] | null> {
    if (this.#isComplete) return null;
    const lines = await this.#process.output.lines(AT_ONCE);
    if (lines.length === 0) return this.#process.failEarly();
    const responses = lines.map(responseFrom);
    this.#isComplete = responses.at(-1)?.event.case === 'end';
    return responses;
  }

  stalled(): void {
    this.#process.stalled();
  }

  [Symbol.dispose](): void {
    this.#process[Symbol.dispose]();
  }
}

function responseFrom(line: string): FindResponse {
  throwFailure(line);
  try {
    return fromJsonString(FindResponseSchema, line);
  } catch (error) {
    throw new EnvdError('internal', 'a search has written something else than a result', { cause: error });
  }
}

/** Throws the error that a line of the program contains, if it contains one. */
export function throwFailure(line: string): void {
  if (!line.startsWith('{"error":')) return;
  const { error }: { error?: { kind?: ErrorKind; message?: unknown } } = JSON.parse(line);
  throw new EnvdError(error?.kind ?? 'internal', String(error?.message));
}
