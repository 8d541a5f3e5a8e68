import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { EnvdError } from '../../base/errors.ts';
import type { Keys } from '../access/keys.ts';
import { trafficTokenFor } from '../access/previews.ts';
import type { PauseKeeps } from '../leases/sandbox.ts';
import { closeSignal } from '../routes/downstream.ts';
import type { Creations } from './creations.ts';
import type { Extensions } from './extensions.ts';
import { assertMetadataFits, assertSizeFits } from './rules.ts';
import { type CreateBody, createSchema, type RegisterBody } from './schemas.ts';
import { assertPauses, assertProvided } from './unprovided.ts';
import type { Views } from './views.ts';

export interface CreateRouteParts {
  readonly creations: Creations;
  readonly extensions: Extensions;
  readonly keys: Keys;
  readonly views: Views;
  /** Creations that name no time to live get this one, in seconds. */
  readonly defaultTimeout: number;
  /** The create hook provides these members of a creation. */
  readonly createOptions: readonly string[];
  /** A pause can keep these. */
  readonly pauseKeeps: readonly PauseKeeps[];
  /** True if a hook pauses machines. */
  readonly canPause: boolean;
}

/** Answers requests that create a sandbox. Registrations, which have an address, use the path of older clients too. */
export class CreateRoutes {
  readonly #parts: CreateRouteParts;

  constructor(parts: CreateRouteParts) {
    this.#parts = parts;
  }

  /** Adds the path that newer clients use. */
  add(app: FastifyInstance): void {
    app.post<{ Body: CreateBody }>('/v2/sandboxes', { schema: { body: createSchema } }, (request, reply) =>
      this.#create(request, request.body, reply),
    );
  }

  /**
   * Answers a request to the path of registrations if it is a creation; otherwise returns undefined. Throws
   * `invalid_argument` for a malformed body, and what `Creations.create` throws.
   */
  async takeOver(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply | undefined> {
    const { templateID, address } = (request.body ?? {}) as Partial<RegisterBody>;
    if (templateID === undefined || address !== undefined) return undefined;
    const isValid = request.compileValidationSchema(createSchema);
    if (isValid(request.body)) return this.#create(request, request.body as CreateBody, reply);
    const [error] = isValid.errors ?? [];
    throw new EnvdError(
      'invalid_argument',
      `body${error?.instancePath ?? ''} ${error?.message ?? 'is malformed'}`,
    );
  }

  async #create({ caller }: FastifyRequest, body: CreateBody, reply: FastifyReply): Promise<FastifyReply> {
    const { creations, views, extensions, keys, defaultTimeout, createOptions, pauseKeeps } = this.#parts;
    const {
      templateID,
      timeout,
      envVars,
      metadata,
      autoPause,
      autoPauseMemory,
      autoResume,
      idleTimeout,
      ...rest
    } = body;
    if (autoPause) assertPauses(this.#parts.canPause);
    assertProvided(body, createOptions, pauseKeeps);
    const wanted = {
      templateID,
      metadata: metadata ?? {},
      onExpiry: autoPause ? 'pause' : 'remove',
      ...(autoPauseMemory === false && { keepMemory: false }),
      autoResume: autoResume?.enabled ?? false,
      ...(idleTimeout !== undefined && { idleTimeout }),
      ...trafficTokenFor(body.network?.allowPublicTraffic),
      ...(body.network?.maskRequestHost != null && { maskRequestHost: body.network.maskRequestHost }),
    } as const;
    assertMetadataFits(wanted);
    const quota = keys.quotaOf(caller?.kind === 'client' ? caller.name : null);
    assertSizeFits({ ...rest }, quota);
    const machine = {
      seconds: extensions.secondsFor(caller, timeout, defaultTimeout),
      quota,
      envVars: envVars ?? {},
      asked: { ...rest, autoPause, autoResume },
    };
    const sandbox = await creations.create(caller, wanted, machine, closeSignal(reply.raw));
    // Nobody knows the id of a sandbox whose client has disconnected.
    if (reply.raw.destroyed) void creations.undo(sandbox);
    return reply.code(201).send(views.withToken(sandbox));
  }
}
