import type { FastifyInstance } from 'fastify';
import { EnvdError } from '../../../base/errors.ts';
import type { Collapser } from '../../services/collapse/collapse.ts';
import type { FilesystemFreezer } from '../../services/freeze/filesystem-freezer.ts';
import {
  FREEZE_MODES,
  type FreezeMode,
  type FreezeRequest,
  type Freezer,
} from '../../services/freeze/freezer.ts';
import { ignoreBody, withClientSignal } from '../requests.ts';
import { warmUp } from '../warm-up.ts';

/** Default and upper limit of `maxCgroups`, the number of cgroups that a freeze visits. */
const DEFAULT_MAX_CGROUPS = 512;
const LIMIT_OF_MAX_CGROUPS = 8192;

type Query = Readonly<Record<string, unknown>>;

/** Registers `/freeze` and `/unfreeze`: stop the workload before a pause, and undo that when the pause has failed. */
export function freezeRoutes(app: FastifyInstance, freezer: Freezer): void {
  app.register((scope, _options, done) => {
    ignoreBody(scope);
    scope.post<{ Querystring: Query }>('/freeze', async (request, reply) => {
      const wanted = parseFreezeRequest(request.query);
      const statistics = await withClientSignal(reply, (signal) => freezer.freeze(wanted, signal));
      return wanted.maxWaitMs > 0 ? reply.send(statistics) : reply.code(204).send();
    });
    scope.post('/unfreeze', async (_request, reply) => {
      await freezer.thaw();
      return reply.code(204).send();
    });
    done();
  });
}

/** Registers `/fsfreeze` and `/fsthaw`: block writes to the guest's root file system for a snapshot. */
export function fsfreezeRoutes(app: FastifyInstance, freezer: FilesystemFreezer): void {
  app.register((scope, _options, done) => {
    ignoreBody(scope);
    scope.post('/fsfreeze', async (_request, reply) => {
      await freezer.freeze();
      return reply.code(204).send();
    });
    scope.post('/fsthaw', async (_request, reply) => {
      await freezer.thaw();
      return reply.code(204).send();
    });
    done();
  });
}

/** Registers `/collapse`: compacts the memory of the daemon before a snapshot. Cancelled when the client disconnects. */
export function collapseRoutes(app: FastifyInstance, collapser: Collapser): void {
  app.register((scope, _options, done) => {
    ignoreBody(scope);
    scope.post('/collapse', (_request, reply) =>
      withClientSignal(reply, (gone) => collapser.collapse(gone, (signal) => warmUp(app, signal))),
    );
    done();
  });
}

/**
 * A number that is not positive counts as absent. Throws `invalid_argument` naming the parameter. An unknown mode is
 * refused instead of replaced: platforms infer the known ones from X-Envd-Version.
 */
function parseFreezeRequest(query: Query): FreezeRequest {
  return {
    mode: parseMode(query),
    maxCgroups: Math.min(parsePositive(query, 'maxCgroups') ?? DEFAULT_MAX_CGROUPS, LIMIT_OF_MAX_CGROUPS),
    maxWaitMs: parsePositive(query, 'maxWaitMs') ?? 0,
  };
}

function parseMode(query: Query): FreezeMode {
  const value = parameter(query, 'mode') || 'legacy';
  const mode = FREEZE_MODES.find((known) => known === value);
  if (!mode) {
    throw new EnvdError('invalid_argument', `mode must be one of ${FREEZE_MODES.join(', ')}, not '${value}'`);
  }
  return mode;
}

function parsePositive(query: Query, name: string): number | null {
  const value = parameter(query, name) || '0';
  if (!/^-?\d{1,15}$/.test(value)) {
    throw new EnvdError('invalid_argument', `${name} must be a whole number, not '${value}'`);
  }
  return Number(value) > 0 ? Number(value) : null;
}

/** Empty when absent. */
function parameter(query: Query, name: string): string {
  const value = query[name] ?? '';
  if (typeof value === 'string') return value;
  throw new EnvdError('invalid_argument', `${name} must be given once`);
}
