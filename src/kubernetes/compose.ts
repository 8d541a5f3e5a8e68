import type { Server } from 'node:http';
import type { Logger } from 'pino';
import { messageOf } from '../base/errors.ts';
import { Cluster } from './cluster/cluster.ts';
import type { KubernetesConfig } from './config/config.ts';
import { HookServer } from './hooks/server.ts';
import { Endings } from './machines/endings.ts';
import { Machines } from './machines/machines.ts';
import { Pools } from './machines/pools.ts';
import { Templates } from './machines/templates.ts';
import { renderKubernetesMetrics } from './metrics.ts';

/** The program, whose server does not listen yet. */
export interface HookProgram {
  readonly server: Server;
  /** Reads the cluster, and watches it. Resolves even if the API server is not reached, which is tried again. */
  start(): Promise<void>;
  /** Stops listening, and waits for the hooks that are being answered. */
  stop(): Promise<void>;
}

/** Creates all services. Throws `invalid_argument` if the configuration of the cluster cannot be used. */
export function composeKubernetes(config: KubernetesConfig, logger: Logger): HookProgram {
  const cluster = new Cluster(config.kubeconfig, config.namespace);
  const templates = new Templates(cluster.templates, config.daemonImage, logger);
  const pools = new Pools(cluster, templates, config.poolStarts, config.pause.includes('disk'), logger);
  const limitMs = config.podTimeout * 1000;
  const closed = config.networkPolicies ? config.closedAddresses : null;
  const endings = new Endings(cluster.pods, logger);
  const machines = new Machines({ cluster, templates, pools, endings, limitMs, pause: config.pause, closed });
  const hooks: HookServer = new HookServer({
    machines,
    secrets: config.hookSecret,
    fault: () => faultOf(cluster),
    metrics: () => renderKubernetesMetrics({ cluster, pools, endings, hooks: hooks.tally }),
    logger,
  });
  logWatches(cluster, logger);
  return {
    server: hooks.server,
    async start() {
      await Promise.all([cluster.pods.start(), cluster.templates.start()]);
    },
    async stop() {
      pools[Symbol.dispose]();
      await hooks.close();
      await Promise.all([cluster.pods.stop(), cluster.templates.stop()]);
    },
  };
}

/** Returns why hooks cannot be answered now, or null. */
function faultOf({ pods, templates }: Cluster): string | null {
  const old = [pods, templates].find(({ isCurrent }) => !isCurrent);
  return old ? `the API server is not reached: ${messageOf(old.failure ?? 'it has not answered yet')}` : null;
}

function logWatches({ pods, templates }: Cluster, logger: Logger): void {
  for (const [kind, watched] of Object.entries({ pods, templates }))
    watched.on('state', (isCurrent) => {
      if (isCurrent) logger.info({ kind }, 'the API server is watched');
      else
        logger.warn({ kind, err: watched.failure }, 'a watch of the API server has ended: it is tried again');
    });
}
