import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import type { Logger } from 'pino';
import { RefusalLines } from '../base/http/refusal-lines.ts';
import { Addresses } from './access/addresses.ts';
import { Forwarded } from './access/forwarded.ts';
import { InFlight } from './access/in-flight.ts';
import { Keys } from './access/keys.ts';
import { Previews } from './access/previews.ts';
import { Rate } from './access/rates.ts';
import { buildPlatform, type PlatformParts } from './api/app.ts';
import { Creations } from './api/creations.ts';
import { Extensions } from './api/extensions.ts';
import { Hosts } from './api/hosts.ts';
import { Operations } from './api/operations.ts';
import type { GatewayConfig } from './config/config.ts';
import { Activity } from './expiry/activity.ts';
import type { EventDelivery } from './expiry/event-delivery.ts';
import { Expiration } from './expiry/expiration.ts';
import { MachineComparison } from './expiry/machine-comparison.ts';
import { MachineMaker } from './expiry/machine-maker.ts';
import { Resumes } from './expiry/resumes.ts';
import { Scheduler } from './expiry/scheduler.ts';
import type { Sandbox } from './leases/sandbox.ts';
import { renderGatewayMetrics } from './metrics.ts';
import { type Opened, openEventHook, openExtendHook, openHooks, openListHook, openStore } from './open.ts';
import { Exchanges } from './proxy/exchanges.ts';
import { ConnectionPools } from './proxy/pools.ts';
import { ReverseProxy } from './proxy/proxy.ts';
import { StaleConnections } from './proxy/stale-connections.ts';
import { Via } from './proxy/via.ts';
import { untilReachable } from './registry/reachable.ts';
import { Registry, type Store } from './registry/registry.ts';
import { PreviewGate } from './routes/preview-gate.ts';
import { RequestTimes } from './routes/request-times.ts';
import { RouteFinder } from './routes/route-finder.ts';
import { Router } from './routes/router.ts';
import type { Front } from './routes/server.ts';
import { TargetReader } from './routes/target.ts';

const MIB = 1024 ** 2;

/** A gateway whose front serves requests. */
export interface Gateway {
  /** Begins to expire sandboxes. */
  start(): void;
  /** Fails the health check, serves on until `--drain` has passed so that load balancers notice, then closes everything. */
  stop(): Promise<void>;
}

/**
 * Creates all parts and connects them. Throws `unavailable` or `invalid_argument` when the registry cannot be used, and the
 * reason of `signal` when that aborts the wait for the registry.
 */
export async function composeGateway(
  config: Limited,
  front: Front,
  logger: Logger,
  signal: AbortSignal,
): Promise<Gateway> {
  const stack = new AsyncDisposableStack();
  try {
    const keys = stack.use(new Keys(config, logger));
    // A file that cannot be opened now is in use by another gateway, so waiting helps only with Redis.
    const waitMs = config.redis === null ? 0 : config.redisWait * 1000;
    const opened = await untilReachable(() => openStore(config, logger), waitMs, logger, signal);
    stack.use(opened.store);
    return await wire({ config, front, logger, keys, ...opened });
  } catch (error) {
    // Open files and connections would keep the process alive, so that its unit could not restart it.
    await stack.disposeAsync();
    throw error;
  }
}

async function wire({ config, front, logger, keys, store, key }: Opened & WireParts): Promise<Gateway> {
  const addresses = new Addresses(config);
  const registry = openRegistry(store, logger);
  await registry.dropClaims();
  const { exchanges, pools, staleConnections } = await composeConnections(config, registry, keys, logger);
  const onGone = (id: string) => staleConnections.close(id);
  const refusals = new RefusalLines(logger, 'a key');
  const common: Common = { config, logger, registry, addresses, keys, onGone, refusals };
  const expiry = await composeExpiry(common);
  const { scheduler, resumes, comparison, delivery } = expiry;
  const targets = new TargetReader(config.headerPrefix, config.domain);
  const [{ drain }, { requireKey, maxRequests }] = [front, config];
  const previews = new Previews(config.headerPrefix);
  const gate = new PreviewGate(previews, requireKey);
  const inFlight = new InFlight(config.maxClientRequests);
  const rates = { clients: new Rate(config.clientRate), sandboxes: new Rate(config.sandboxRate) };
  const [times, forwarded] = [new RequestTimes(), new Forwarded(config.trustedProxies)];
  const shown = { registry, exchanges, times, expiry: expiry.expiration.tally, comparison, delivery };
  const metrics = () => renderGatewayMetrics({ ...shown, results: router.counts });
  const forPlatform = { targets, previews, forwarded, drain, metrics, rate: rates.clients, inFlight };
  const app = composePlatform(common, { ...forPlatform, ...expiry });
  await app.ready();
  const [activity, via] = [new Activity({ registry, exchanges, logger }), new Via(key)];
  const parts = { targets, previews, exchanges, staleConnections, inFlight, keys, forwarded, times, logger };
  const router: Router = new Router({
    ...parts,
    ...{ maxRequests, requireKey, refusals },
    finder: new RouteFinder({ registry, addresses, activity, via, resumes, rates, times, gate, requireKey }),
    proxy: new ReverseProxy(pools, config.responseTimeout * 1000, forwarded, targets.vary),
    platform: (request, response) => app.routing(request, response),
  });
  front.serve(router);
  const owned = [activity, staleConnections, exchanges, keys];
  return {
    start() {
      for (const each of [scheduler, comparison, delivery]) each?.start();
    },
    async stop() {
      await drain.run(front.server, config.drain * 1000);
      // Events of the others may come until they have stopped.
      await Promise.all([scheduler.stop(), comparison?.stop()]);
      await delivery?.stop();
      exchanges.endAll();
      await front.close();
      pools.closeAll();
      for (const each of owned) each[Symbol.dispose]();
      await app.close();
      await store[Symbol.asyncDispose]();
    },
  };
}

function openRegistry(store: Store, logger: Logger): Registry {
  return new Registry(store, (sandboxID) =>
    logger.error(
      { sandboxID },
      'a record is malformed and left out: register the sandbox again to repair it',
    ),
  );
}

/** Creates the connections to sandboxes, which close when a record or a key no longer permits them. */
async function composeConnections(config: Limited, registry: Registry, keys: Keys, logger: Logger) {
  const exchanges = new Exchanges(config.maxBuffered * MIB);
  const pools = new ConnectionPools(Math.ceil(config.maxConnections / 4));
  const staleConnections = new StaleConnections(exchanges, pools, registry, logger);
  await registry.watch((id) => void staleConnections.check(id));
  keys.watch(() => void staleConnections.check(null));
  return { exchanges, pools, staleConnections };
}

/** In this configuration, `maxConnections` has a value: the one given, or what the machine allows. */
type Limited = GatewayConfig & { readonly maxConnections: number };

/** Most other parts need these. */
interface Common {
  readonly config: Limited;
  readonly logger: Logger;
  readonly registry: Registry;
  readonly addresses: Addresses;
  readonly keys: Keys;
  readonly onGone: (id: string) => void;
  readonly refusals: RefusalLines;
}

/** These exist before the registry does. */
interface WireParts extends Pick<Common, 'config' | 'logger' | 'keys'> {
  readonly front: Front;
}

interface Expiry {
  readonly expiration: Expiration;
  readonly scheduler: Scheduler;
  readonly resumes: Resumes;
  readonly creations: Creations;
  /** It is null without a list hook. */
  readonly comparison: MachineComparison | null;
  /** It is null without an event hook. */
  readonly delivery: EventDelivery | null;
}

async function composeExpiry(common: Common): Promise<Expiry> {
  const { config, logger, registry, addresses, keys, onGone } = common;
  const owner = `${hostname()}-${process.pid}-${randomUUID()}`;
  const { defaultTimeout, keepPaused } = config;
  const resumedFor = (client: string | null) =>
    Math.min(defaultTimeout, keys.quotaOf(client).timeout ?? Number.POSITIVE_INFINITY);
  const hooks = await openHooks(config);
  const canRemove = hooks.kill !== null;
  const paused = {
    byHook: hooks.expire !== null,
    keptMs: keepPaused === 0 ? null : keepPaused * 1000,
    canRemove,
  };
  const maker = new MachineMaker({
    hook: hooks.create,
    drained: () => registry.shared.drained(),
    addresses,
    logger,
  });
  const parts = { registry, hooks, maker, resumedFor, paused, addresses, owner, onGone, logger };
  const expiration = new Expiration(parts);
  const { maxExpiries, maxExpiriesPerHost, resumeWait, maxWaiting, maxResumes, maxCreates } = config;
  const limits = { maxExpiries, maxExpiriesPerHost };
  const scheduler = new Scheduler({ registry, expiration, owner, ...paused, logger, ...limits });
  const waits = { resumeWait, maxWaiting, maxResumes };
  const resumes = new Resumes({ registry, scheduler, owner, isOn: hooks.resume !== null, ...waits });
  const { idleTimeout } = config;
  const creations = new Creations({
    ...{ registry, scheduler, maker, owner, maxCreates, maxWaiting, idleTimeout, canRemove },
  });
  const comparison = composeMachineComparison(config, registry, () => scheduler.wake(), logger);
  const delivery = openEventHook(config, registry.shared, owner, logger);
  return { expiration, scheduler, resumes, creations, comparison, delivery };
}

function composeMachineComparison(config: Limited, registry: Registry, onChange: () => void, logger: Logger) {
  const list = openListHook(config);
  if (list === null) return null;
  const { listInterval, reconcileGrace, reconcile } = config;
  const times = { intervalMs: listInterval * 1000, graceMs: reconcileGrace * 1000 };
  const removes = reconcile === 'remove';
  return new MachineComparison({ registry, list, ...times, removes, onChange, logger });
}

function composePlatform(
  { config, logger, registry, addresses, keys, onGone, refusals }: Common,
  {
    expiration,
    scheduler,
    ...given
  }: Expiry &
    Pick<PlatformParts, 'targets' | 'previews' | 'forwarded' | 'drain' | 'metrics' | 'rate' | 'inFlight'>,
) {
  const onChange = ({ id, phase, deadline }: Sandbox) => {
    if (phase === 'expiring' && deadline > Date.now()) expiration.cancelCollapse(id);
    scheduler.wake();
  };
  const { defaultTimeout, idleTimeout, hook, killHook, hookTimeout } = config;
  const { onExpiry, domain, createOptions, pauseKeeps, templateFile } = config;
  const hooks = { pause: hook !== null, kill: killHook !== null, timeout: hookTimeout };
  const parts = { registry, addresses, resumes: given.resumes, hooks, defaultTimeout, idleTimeout };
  const quotaOf = (owner: string | null) => keys.quotaOf(owner);
  const extensions = new Extensions({ ask: openExtendHook(config), quotaOf, logger });
  const operations = new Operations({ ...parts, extensions, onChange, onRemoved: onGone });
  return buildPlatform({
    ...given,
    operations,
    extensions,
    hosts: new Hosts({ registry, hooks, onChange }),
    shared: registry.shared,
    defaultTimeout,
    createOptions,
    pauseKeeps,
    canPause: hooks.pause,
    templateFile,
    keys,
    onExpiry,
    domain,
    logger,
    refusals,
  });
}
