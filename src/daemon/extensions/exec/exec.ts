import { isUtf8 } from 'node:buffer';
import { Readable } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { FastifyInstance } from 'fastify';
import { EnvdError, HttpError } from '../../../base/errors.ts';
import type { CallScope } from '../../http/admission/call-scope.ts';
import { endUnlessComplete, ignoreContentType } from '../../http/admission/requests.ts';
import { requireSimpleJson } from '../../http/connect/complexity.ts';
import { callerOf, readBody } from '../../http/connect/request.ts';
import type { StreamPlaces } from '../../http/connect/stream-places.ts';
import type { Extension } from '../../http/extension.ts';
import type { Guest } from '../../services/guest/guest.ts';
import type { ProcessTable } from '../../services/process/table.ts';
import { EXEC_REQUEST, type ExecRequest, inputBytesOf } from './exec-request.ts';
import { type ExecCommand, type Execution, execute } from './execute.ts';
import { membersOf } from './head-and-tail.ts';

/** The longest body, in bytes. A text of this size is parsed within 50 ms. */
const BODY_BYTES = 16 * 1024 * 1024;
const LINGER = { milliseconds: 1000, bytes: 16 * 1024 * 1024 };
const JSON_TYPE = 'application/json; charset=utf-8';
/** Shorter answers are sent as one piece, with their length. */
const JOINED_BYTES = 64 * 1024;

/**
 * `POST /exec` runs one command to its end and answers with its output and how it ended, in JSON. It takes a place of a stream. A
 * command whose client leaves is killed.
 */
export function execExtension(processes: ProcessTable, guest: Guest, places: StreamPlaces): Extension {
  return { addRoutes: (app) => execRoutes(app, processes, guest, places) };
}

function execRoutes(app: FastifyInstance, processes: ProcessTable, guest: Guest, places: StreamPlaces): void {
  app.post('/exec', { onRequest: ignoreContentType }, async ({ call }, reply) => {
    places.take(reply.raw);
    const request = EXEC_REQUEST.read(await readJson(call), '');
    const user = request.user === null ? callerOf(call, guest) : guest.user(request.user);
    const execution = await execute(commandOf(request, user), processes, call);
    const pieces = answerOf(execution);
    const kept = execution.stdout.capacity + execution.stderr.capacity;
    // A stop lets it be sent; when memory is scarce, its connection is closed. What is sent is a copy in part.
    call.transfer(2 * kept);
    const body =
      kept < JOINED_BYTES ? [...pieces].join('') : Readable.from(inTurns(pieces), { objectMode: false });
    return reply.type(JSON_TYPE).send(body);
  });
}

function commandOf(request: ExecRequest, user: ExecCommand['user']): ExecCommand {
  const { cmd: command, args, envs: environment, cwd, timeoutMs, maxOutputBytes } = request;
  const config = { command, args, environment, cwd };
  return { config, user, input: inputBytesOf(request), timeoutMs, maxOutputBytes };
}

/** Throws `invalid_argument` for what is no JSON, `resource_exhausted` for what takes too long to parse, and 413. */
async function readJson(call: CallScope): Promise<unknown> {
  const { request, response } = call;
  try {
    const body = await readBody(call, BODY_BYTES, tooLong);
    requireSimpleJson(body);
    // Otherwise a path would become another one, with replacement characters.
    if (!isUtf8(body)) throw new EnvdError('invalid_argument', 'request body is not UTF-8');
    return JSON.parse(body.toString('utf8'));
  } catch (error) {
    if (error instanceof SyntaxError)
      throw new EnvdError('invalid_argument', 'request body is not valid JSON');
    throw error;
  } finally {
    if (!request.complete) endUnlessComplete(request, response, LINGER);
  }
}

function tooLong(limit: number): HttpError {
  return new HttpError(413, `request body is too large: send at most ${limit} bytes`);
}

/** The answer as pieces of JSON: how the command ended comes first. */
function* answerOf({ end, stdout, stderr, durationMs }: Execution): Generator<string> {
  const { exitCode, signal, usage } = end;
  const reason = end.reason.replaceAll(' ', '_');
  const truncated = stdout.isTruncated || stderr.isTruncated;
  const outcome = { exitCode, signal, reason, truncated, durationMs, usage };
  yield JSON.stringify(outcome).slice(0, -1);
  yield* membersOf('stdout', stdout);
  yield* membersOf('stderr', stderr);
  yield '}';
}

async function* inTurns(pieces: Iterable<string>): AsyncGenerator<string> {
  for (const piece of pieces) {
    yield piece;
    await nextTurn();
  }
}
