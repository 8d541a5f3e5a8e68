// Every request, REST or RPC, with a known route or without, passes these steps before its body is read.
import type { IncomingMessage } from 'node:http';
import cors from '@fastify/cors';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { EnvdError } from '../../../base/errors.ts';
import { hostFault } from '../../../base/http/client-errors.ts';
import type { Guest } from '../../services/guest/guest.ts';
import { hasAccess, requireAccessToken } from './auth.ts';
import type { CallLog } from './call-log.ts';
import { beginCall } from './requests.ts';

const CORS_MAX_AGE_S = 7200;

/** Response headers that pages of other origins may read. */
const EXPOSED_HEADERS = [
  // These belong to Connect and gRPC-Web.
  ...['Grpc-Status', 'Grpc-Message', 'Grpc-Status-Details-Bin'],
  ...['Content-Encoding', 'Connect-Content-Encoding'],
  ...['Location', 'Cache-Control', 'X-Content-Type-Options'],
  // Clients resume and verify downloads by these.
  ...['Accept-Ranges', 'Content-Disposition', 'Content-Range', 'ETag', 'Repr-Digest'],
];

const ANY_ORIGIN = {
  origin: '*',
  // Without this, an OPTIONS request that is no preflight would be refused.
  strictPreflight: false,
  methods: ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'],
  exposedHeaders: EXPOSED_HEADERS.join(', '),
  maxAge: CORS_MAX_AGE_S,
};

/** Adds the steps in the order in which they run. The first step that fails answers the request. */
export function admitRequests(app: FastifyInstance, calls: CallLog, guest: Guest): void {
  app.addHook('onRequest', beginCall(calls));
  app.addHook('onRequest', forbidCaching);
  // This step answers preflights.
  app.register(cors, ANY_ORIGIN);
  app.addHook('onRequest', requireHost);
  app.addHook('onRequest', requireChunks);
  app.addHook('onRequest', requireAccessToken(guest));
}

/** Returns whether a request passes the same steps as an upgrade, which needs the access token. */
export function admitsUpgrade(request: IncomingMessage, guest: Guest): boolean {
  return hostFault(request) === null && codingFault(request) === null && hasAccess(request.headers, guest);
}

type Done = (error?: Error) => void;

/** Downloads replace the header (download-plan.ts): browsers may keep files, and ask each time whether they are current. */
function forbidCaching(_request: FastifyRequest, reply: FastifyReply, done: Done): void {
  reply.header('cache-control', 'no-store');
  done();
}

function requireHost(request: FastifyRequest, reply: FastifyReply, done: Done): void {
  const fault = hostFault(request.raw);
  if (fault !== null) reply.header('connection', 'close');
  done(fault === null ? undefined : new EnvdError('invalid_argument', fault));
}

/** Refuses other transfer codings, because Node would pass such a body on undecoded. Source: RFC 9112, section 6.1. */
function requireChunks(request: FastifyRequest, _reply: FastifyReply, done: Done): void {
  const fault = codingFault(request.raw);
  done(fault === null ? undefined : new EnvdError('unimplemented', fault));
}

function codingFault({ headers }: IncomingMessage): string | null {
  const coding = headers['transfer-encoding']?.toLowerCase() ?? 'chunked';
  return coding === 'chunked' ? null : `transfer coding '${coding}' is not supported: use chunked`;
}
