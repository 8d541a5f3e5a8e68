// What every request passes before its body is read, REST and RPC, known route or not.
import cors from '@fastify/cors';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { EnvdError } from '../../../base/errors.ts';
import { hostFault } from '../../../base/http/client-errors.ts';
import type { Guest } from '../../services/guest/guest.ts';
import { requireAccessToken } from './auth.ts';
import type { CallLog } from './call-log.ts';
import { beginCall } from './requests.ts';

const CORS_MAX_AGE_S = 7200;

/** Response headers that pages of other origins may read. */
const EXPOSED_HEADERS = [
  // Those of Connect and gRPC-Web.
  ...['Grpc-Status', 'Grpc-Message', 'Grpc-Status-Details-Bin'],
  ...['Content-Encoding', 'Connect-Content-Encoding'],
  ...['Location', 'Cache-Control', 'X-Content-Type-Options'],
  // For resuming and verifying downloads.
  ...['Accept-Ranges', 'Content-Disposition', 'Content-Range', 'ETag', 'Repr-Digest'],
];

const ANY_ORIGIN = {
  origin: '*',
  // OPTIONS requests that are no preflights are accepted.
  strictPreflight: false,
  methods: ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'],
  exposedHeaders: EXPOSED_HEADERS.join(', '),
  maxAge: CORS_MAX_AGE_S,
};

/** Adds the steps in the order in which they run. The first one that fails answers. */
export function admitRequests(app: FastifyInstance, calls: CallLog, guest: Guest): void {
  app.addHook('onRequest', beginCall(calls));
  app.addHook('onRequest', forbidCaching);
  // It answers preflights.
  app.register(cors, ANY_ORIGIN);
  app.addHook('onRequest', requireHost);
  app.addHook('onRequest', requireChunks);
  app.addHook('onRequest', requireAccessToken(guest));
}

type Done = (error?: Error) => void;

/** File downloads replace the header (download-plan.ts): browsers may keep them, and ask whether they are current. */
function forbidCaching(_request: FastifyRequest, reply: FastifyReply, done: Done): void {
  reply.header('cache-control', 'no-store');
  done();
}

function requireHost(request: FastifyRequest, reply: FastifyReply, done: Done): void {
  const fault = hostFault(request.raw);
  if (fault !== null) reply.header('connection', 'close');
  done(fault === null ? undefined : new EnvdError('invalid_argument', fault));
}

/** RFC 9112, section 6.1: Node takes what is coded otherwise, too, as it is. */
function requireChunks(request: FastifyRequest, _reply: FastifyReply, done: Done): void {
  const coding = request.headers['transfer-encoding']?.toLowerCase() ?? 'chunked';
  if (coding === 'chunked') done();
  else done(new EnvdError('unimplemented', `transfer coding '${coding}' is not supported: use chunked`));
}
