import type { FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import type { CallTally } from '../../base/http/call-tally.ts';
import type { Connections } from '../../base/http/connections.ts';
import type { Quota } from '../../base/quota.ts';
import type { Transfers } from '../../base/tally.ts';
import { FileServices } from '../services/files/file-services.ts';
import type { Health } from '../services/guest/health.ts';
import type { MetricsReader } from '../services/guest/metrics.ts';
import type { Init } from '../services/init/init.ts';
import type { Collapser } from '../services/pause/collapse.ts';
import type { FilesystemFreezer } from '../services/pause/filesystem-freezer.ts';
import type { Freezer } from '../services/pause/freezer.ts';
import type { Forwards } from '../services/ports/forwards.ts';
import type { WorkloadCgroups } from '../services/process/cgroups/cgroups.ts';
import type { Watcher } from '../services/watch/watcher.ts';
import type { SharedLimits } from './admission/call-scope.ts';
import type { Extension } from './extension.ts';
import type { StreamServer } from './protocol/connect-stream.ts';
import type { StreamPlaces } from './protocol/stream-places.ts';
import { DownloadLimits } from './rest/files/download-limits.ts';
import { fileRoutes } from './rest/files/routes.ts';
import { envsRoutes, healthRoutes, metricsRoutes, portsRoutes } from './rest/guest.ts';
import { initRoutes } from './rest/init.ts';
import { collapseRoutes, freezeRoutes, fsfreezeRoutes } from './rest/pause.ts';
import { createRpcs, mountRpcs, type RpcDependencies } from './rpc/mount.ts';

/** The services that routes and RPCs use. */
export interface AppServices extends RpcDependencies {
  readonly cgroups: WorkloadCgroups;
  readonly init: Init;
  readonly metrics: MetricsReader;
  readonly health: Health;
  readonly freezer: Freezer;
  readonly filesystemFreezer: FilesystemFreezer;
  readonly collapser: Collapser;
  readonly ports: Forwards;
  readonly records: { readonly failures: number };
  readonly watcher: Watcher;
  readonly uploads: Transfers;
  readonly downloads: Transfers;
}

export interface AppOptions {
  readonly connections: Connections;
  readonly extensions: readonly Extension[];
  readonly places: StreamPlaces;
  readonly streams: StreamServer;
  /** Limits the memory of requests that are being received and served. */
  readonly requests: Quota;
  /** Limits the output that clients have not read. */
  readonly unread: Quota;
  readonly logger: Logger;
  /** Aborts when the daemon stops. Open streams end with its reason. */
  readonly shutdown: AbortSignal;
}

/** Registers all operations, except `/upgrade`. */
export function registerRoutes(
  app: FastifyInstance,
  services: AppServices,
  options: AppOptions,
  calls: CallTally,
  limits: SharedLimits,
): void {
  const { guest, entries, gate, uploads } = services;
  const { extensions } = options;
  for (const extension of extensions) extension.addRoutes?.(app, calls);
  healthRoutes(app, services.health, guest);
  metricsRoutes(app, services.metrics);
  envsRoutes(app, guest);
  portsRoutes(app, services.ports);
  initRoutes(app, services.init, options.logger);
  freezeRoutes(app, services.freezer);
  fsfreezeRoutes(app, services.filesystemFreezer);
  collapseRoutes(app, services.collapser);
  const files = new FileServices(guest, { ...entries, gate, uploads });
  fileRoutes(app, files, new DownloadLimits(), {
    formats: extensions.flatMap(({ archives }) => archives?.formats ?? []),
    uploads: extensions.flatMap(({ archives }) => archives?.uploads ?? []),
    digests: extensions.find(({ digests }) => digests)?.digests ?? null,
  });
  const listings = extensions.flatMap(({ listing }) => listing ?? []);
  const keeper = extensions.find(({ keepsOutput }) => keepsOutput)?.keepsOutput ?? null;
  const rpcs = extensions.flatMap((each) => each.rpcs ?? []);
  const own = createRpcs(services, options.streams, { listings, keeper });
  mountRpcs(app, [...own, ...rpcs], limits, options.places);
}
