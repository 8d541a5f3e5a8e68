import { Readable } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { FastifyInstance } from 'fastify';
import type { HttpError } from '../../../base/errors.ts';
import { ignoreContentType } from '../../http/admission/requests.ts';
import { bodyTooLong } from '../../http/bodies/body-limits.ts';
import { readJson } from '../../http/bodies/json-body.ts';
import type { Extension } from '../../http/extension.ts';
import { callerOf } from '../../http/protocol/request.ts';
import type { StreamPlaces } from '../../http/protocol/stream-places.ts';
import type { Guest } from '../../services/guest/guest.ts';
import type { ProcessTable } from '../../services/process/table.ts';
import { EXEC_REQUEST, type ExecRequest, inputBytesOf } from './exec-request.ts';
import { type ExecCommand, type Execution, execute } from './execute.ts';
import { membersOf } from './head-and-tail.ts';

/** A body may have this many bytes, because parsing a longer one would block the event loop for too long. */
const BODY_BYTES = 4 * 1024 * 1024;
const JSON_TYPE = 'application/json; charset=utf-8';
/** An answer that is shorter than this is sent as one piece with its length, in bytes. */
const JOINED_BYTES = 64 * 1024;

/**
 * Adds `POST /exec`, which runs one command to its end and answers in JSON with its output and with how it ended. It takes a
 * place of a stream. If its client disconnects, the command is killed.
 */
export function execExtension(processes: ProcessTable, guest: Guest, places: StreamPlaces): Extension {
  return { addRoutes: (app) => execRoutes(app, processes, guest, places) };
}

function execRoutes(app: FastifyInstance, processes: ProcessTable, guest: Guest, places: StreamPlaces): void {
  app.post('/exec', { onRequest: ignoreContentType }, async ({ call }, reply) => {
    places.enter(reply.raw);
    const request = EXEC_REQUEST.read(await readJson(call, BODY_BYTES, tooLong), '');
    const user = request.user === null ? callerOf(call, guest) : guest.user(request.user);
    const execution = await execute(commandOf(request, user), processes, call);
    const pieces = answerOf(execution);
    const kept = execution.stdout.capacity + execution.stderr.capacity;
    // From now on the answer counts as a transfer: a stop of the daemon waits for it, and a lack of memory closes its
    // connection. The pieces copy parts of the output, so that it counts twice.
    call.transfer(2 * kept);
    const body =
      kept < JOINED_BYTES ? [...pieces].join('') : Readable.from(inTurns(pieces), { objectMode: false });
    return reply.type(JSON_TYPE).send(body);
  });
}

function commandOf(request: ExecRequest, user: ExecCommand['user']): ExecCommand {
  const { cmd: command, args, envs: environment, cwd, timeoutMs, limits, maxOutputBytes } = request;
  const config = { command, args, environment, cwd };
  return { config, user, input: inputBytesOf(request), timeoutMs, limits, maxOutputBytes };
}

function tooLong(limit: number): HttpError {
  return bodyTooLong(limit, ', or upload the input as a file');
}

/** Yields the answer as pieces of JSON. It begins with how the command ended. */
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
