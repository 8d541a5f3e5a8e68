import type { FastifyInstance, FastifyRequest } from 'fastify';
import { EnvdError } from '../../base/errors.ts';
import type { Forwarded } from '../access/forwarded.ts';
import type { Previews } from '../access/previews.ts';
import { isNameable } from '../routes/names.ts';
import type { Operations } from './operations.ts';
import { type PreviewBody, previewSchema } from './schemas.ts';

const DEFAULT_SECONDS = 3600;

export interface PreviewRouteParts {
  readonly operations: Pick<Operations, 'find'>;
  readonly previews: Previews;
  readonly forwarded: Pick<Forwarded, 'isSecure'>;
  /** The domain of hosts that name sandboxes; null: none. */
  readonly domain: string | null;
}

/** Makes links that open one port of a private sandbox in a browser, without its token. */
export function previewRoutes(app: FastifyInstance, parts: PreviewRouteParts): void {
  app.post<{ Params: { readonly id: string }; Body: PreviewBody }>(
    '/sandboxes/:id/previews',
    { schema: { body: previewSchema } },
    async (request, reply) => {
      const { port, path = '/', expiresIn = DEFAULT_SECONDS } = request.body;
      const { sandbox, now } = await parts.operations.find(request.caller, request.params.id);
      const { trafficToken, id } = sandbox;
      const host = hostOf(parts, id, port);
      if (!trafficToken) {
        const message = `sandbox '${id}' is public, so its ports need no links: create it with allowPublicTraffic false`;
        throw new EnvdError('conflict', message);
      }
      // By the clock that checks the link, which is that of Redis if there is one.
      const expires = Math.floor(now / 1000) + expiresIn;
      const target = parts.previews.link(trafficToken, port, path, expires);
      const url = `${originOf(parts, request, host)}${target}`;
      return reply.code(201).send({ url, expiresAt: new Date(expires * 1000).toISOString() });
    },
  );
}

function hostOf({ domain }: PreviewRouteParts, id: string, port: number): string {
  if (domain !== null && isNameable(id)) return `${port}-${id}.${domain}`;
  const why = domain === null ? 'this gateway has no --domain' : `the id '${id}' fits in no host name`;
  throw new EnvdError('failed_precondition', `a link needs a host that names the sandbox: ${why}`);
}

/** As the caller has reached the gateway: by the same scheme and port. */
function originOf({ forwarded }: PreviewRouteParts, { raw }: FastifyRequest, host: string): string {
  const [, port = ''] = /(:\d{1,5})$/.exec(raw.headers.host ?? '') ?? [];
  return `${forwarded.isSecure(raw) ? 'https' : 'http'}://${host}${port}`;
}
