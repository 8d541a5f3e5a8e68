import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyInstance } from 'fastify';
import { pino } from 'pino';
import { AbortRelay } from '../../../src/base/abort.ts';
import { CallTally } from '../../../src/base/http/call-tally.ts';
import { Quota } from '../../../src/base/quota.ts';
import { Transfers } from '../../../src/base/tally.ts';
import { CallLog } from '../../../src/daemon/http/admission/call-log.ts';
import { CallScope } from '../../../src/daemon/http/admission/call-scope.ts';
import { beginCall, disableBodyParsing } from '../../../src/daemon/http/admission/requests.ts';

const GENEROUS = 64 * 1024 * 1024;

export function sharedLimits(unread = new Quota(GENEROUS), shutdown = new AbortController().signal) {
  return { shutdown: new AbortRelay(shutdown), requests: unread, unread };
}

/** The scope of a call that is not logged. */
export function callOf(request: IncomingMessage, response: ServerResponse, shared = sharedLimits()) {
  return new CallScope({ operation: 'POST /test', request, response }, shared, () => {});
}

/** Gives each request of `app` its scope, and parses no bodies, as the daemon does. */
export function withCalls(app: FastifyInstance, shared = sharedLimits()): void {
  disableBodyParsing(app);
  const logger = pino({ level: 'silent' });
  app.addHook('onRequest', beginCall(new CallLog(logger, shared, new CallTally(), new Transfers())));
}
