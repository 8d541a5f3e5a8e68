import { join } from 'node:path';
import type { FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import { Disposables } from './base/disposables.ts';
import { EnvdError } from './base/errors.ts';
import type { Config } from './config.ts';
import { Cgroup, findCgroupMount, ownCgroup } from './os/cgroup2.ts';
import { wallClock } from './os/clock.ts';
import { UserDatabase } from './os/users.ts';
import { buildApp } from './server/app.ts';
import { Collapser } from './services/collapse/collapse.ts';
import { createFileServices } from './services/files/services.ts';
import { Freezer } from './services/freeze/freezer.ts';
import { SYSTEM_TRUST_STORE } from './services/lifecycle/ca-bundle.ts';
import { Guest } from './services/lifecycle/guest.ts';
import { Init } from './services/lifecycle/init.ts';
import { MetricsReader } from './services/lifecycle/metrics.ts';
import { authStep } from './services/lifecycle/steps/auth.ts';
import { caBundleStep } from './services/lifecycle/steps/ca-bundle.ts';
import { clockStep } from './services/lifecycle/steps/clock.ts';
import { defaultsStep } from './services/lifecycle/steps/defaults.ts';
import { environmentStep } from './services/lifecycle/steps/environment.ts';
import { hostsStep } from './services/lifecycle/steps/hosts.ts';
import { thawStep } from './services/lifecycle/steps/thaw.ts';
import { tokenStep } from './services/lifecycle/steps/token.ts';
import { WorkloadCgroups } from './services/process/cgroups.ts';
import { ProcessTable } from './services/process/table.ts';
import { PolledWatches } from './services/watch/polled.ts';
import { Watcher } from './services/watch/watcher.ts';

/** The name that the guest finds the address under that /init calls `hyperloopIP`. */
const HYPERLOOP_HOST = 'hyperloop.svc.internal';

/** The whole daemon, wired and not listening yet. */
export interface Daemon {
  readonly app: FastifyInstance;
  /** Ends streams, processes, watches and the server; thaws what is frozen. */
  stop(): Promise<void>;
}

/** The only place where services are made and learn of each other. */
export function compose(config: Config, logger: Logger): Daemon {
  const owned = new Disposables();
  const own = <T extends Disposable>(value: T): T => {
    owned.add(() => value[Symbol.dispose]());
    return value;
  };
  const shutdown = new AbortController();
  const users = new UserDatabase();
  const guest = new Guest(users);
  const mount = config.cgroups ? findCgroupMount() : null;
  const cgroups = own(createCgroups(config, mount, logger));
  const freezer = own(createFreezer(config, mount, cgroups, logger));
  const processes = new ProcessTable(guest, cgroups, config);
  const watcher = own(new Watcher());
  const polled = own(new PolledWatches(watcher));
  const app = buildApp(
    {
      guest,
      users,
      processes,
      watcher,
      polled,
      freezer,
      init: createInit(guest, freezer),
      metrics: new MetricsReader(),
      files: createFileServices(guest),
      collapser: new Collapser(),
    },
    { version: config.version, logger, shutdown: shutdown.signal },
  );
  return {
    app,
    async stop() {
      shutdown.abort(new EnvdError('unavailable', 'the daemon is stopping'));
      await freezer.thaw();
      await processes.stop();
      await app.close();
      owned[Symbol.dispose]();
    },
  };
}

/** A root that was asked for must work; one that was only found may turn out not to be ours. */
function createCgroups(config: Config, mount: string | null, logger: Logger): WorkloadCgroups {
  if (!config.cgroups) return WorkloadCgroups.create(null);
  if (config.cgroupRoot !== null) return WorkloadCgroups.create(config.cgroupRoot);
  try {
    return WorkloadCgroups.create(mount && join(mount, 'envd'));
  } catch (error) {
    logger.warn({ err: error }, 'cgroups cannot be used: the workload cannot be frozen');
    return WorkloadCgroups.create(null);
  }
}

function createFreezer(
  config: Config,
  mount: string | null,
  cgroups: WorkloadCgroups,
  logger: Logger,
): Freezer {
  return new Freezer({
    workload: cgroups.all(),
    hierarchy: mount === null ? null : { top: new Cgroup(mount), own: ownCgroup(mount) },
    recordFile: join(config.runtimeDirectory, 'frozen.json'),
    onWatchdog: (error) => {
      if (error === null) logger.warn('a freeze that nobody undid was undone');
      else logger.error({ err: error }, 'a freeze that nobody undid could not be undone');
    },
  });
}

/** What /init does, in this order. */
function createInit(guest: Guest, freezer: Freezer): Init {
  return new Init([
    // No metadata service yet: nothing vouches for a token.
    authStep(guest, async () => null),
    clockStep(wallClock),
    environmentStep(guest, () => ({})),
    tokenStep(guest),
    defaultsStep(guest),
    caBundleStep(SYSTEM_TRUST_STORE),
    hostsStep('/etc/hosts', HYPERLOOP_HOST),
    thawStep(() => freezer.thaw()),
  ]);
}
