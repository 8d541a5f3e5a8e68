import type { FastifyInstance } from 'fastify';
import type { CallTally } from '../../base/http/call-tally.ts';
import type { HandedOverPart } from '../services/handover/state.ts';
import type { Rpc } from './protocol/rpc.ts';
import type { ArchiveFormat, ArchiveUpload } from './rest/files/archives.ts';
import type { ContentDigests } from './rest/files/content-digests.ts';
import type { Listing } from './rpc/process.ts';
import type { OutputKeeper } from './rpc/process-streams.ts';
import type { WebSocketRoute } from './websocket/upgrades.ts';

/** What an extension adds to the server. The core knows none of them: `wiring/extensions.ts` lists them. */
export interface Extension {
  /** Adds its routes. Called before the routes of the core are added, which it may hook into (Fastify's `onRoute`). */
  addRoutes?(app: FastifyInstance, calls: CallTally): void;
  readonly rpcs?: readonly Rpc[];
  readonly listing?: Listing;
  readonly keepsOutput?: OutputKeeper;
  readonly archives?: { readonly formats: readonly ArchiveFormat[]; readonly uploads?: ArchiveUpload };
  readonly digests?: ContentDigests;
  readonly webSockets?: readonly WebSocketRoute[];
  /** Goes over to the next program in an upgrade. */
  readonly handedOver?: HandedOverPart;
}
