import type { FastifyInstance } from 'fastify';
import type { Rpc } from './connect/rpc.ts';
import type { ArchiveFormat, ArchiveUpload } from './rest/files/archives.ts';
import type { Listing } from './rpc/process.ts';
import type { WebSocketRoute } from './websocket/upgrades.ts';

/** What an extension adds to the server. The core knows none of them: `wiring/extensions.ts` lists them. */
export interface Extension {
  /** Adds its routes. Called before the routes of the core are added, which it may hook into (Fastify's `onRoute`). */
  addRoutes?(app: FastifyInstance): void;
  readonly rpcs?: readonly Rpc[];
  readonly listing?: Listing;
  readonly archives?: { readonly formats: readonly ArchiveFormat[]; readonly uploads?: ArchiveUpload };
  readonly webSockets?: readonly WebSocketRoute[];
}
