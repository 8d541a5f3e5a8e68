import { randomUUID } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import type { Server } from 'node:http';
import { hostname } from 'node:os';
import { dirname } from 'node:path';
import type { Logger } from 'pino';
import { buildPlatform } from './api/app.ts';
import { Operations } from './api/operations.ts';
import type { Config } from './config.ts';
import { Expiration } from './expiry/expiration.ts';
import { Scheduler } from './expiry/scheduler.ts';
import { CommandHook } from './hooks/command-hook.ts';
import { type Hook, NO_HOOK } from './hooks/hook.ts';
import { UrlHook } from './hooks/url-hook.ts';
import type { Sandbox } from './leases/sandbox.ts';
import { renderMetrics } from './metrics.ts';
import { Exchanges } from './proxy/exchanges.ts';
import { Pools } from './proxy/pools.ts';
import { Carrier } from './proxy/proxy.ts';
import { Leftovers } from './proxy/stale-connections.ts';
import { EmbeddedStore } from './registry/embedded.ts';
import { Registry } from './registry/registry.ts';
import type { Store } from './registry/store.ts';
import { Connections } from './routes/connections.ts';
import { Door } from './routes/router.ts';
import { createFrontServer } from './routes/server.ts';
import { TargetReader } from './routes/target.ts';

/** The whole gateway, wired and not listening yet. */
export interface Gateway {
  readonly server: Server;
  /** Looks after what is due; to be called when it listens. */
  start(): void;
  /** Closes the client's connection that the running code works for. Returns false when it works for none. */
  endCurrent(): boolean;
  stop(): Promise<void>;
}

/** The only place where the parts are made and learn of each other. Throws when the registry cannot be used. */
export async function compose(config: Config, logger: Logger): Promise<Gateway> {
  const store = await openStore(config, logger);
  const registry = new Registry(store);
  await registry.takeOver();
  const [exchanges, pools] = [new Exchanges(), new Pools()];
  const leftovers = new Leftovers(exchanges, pools, registry, logger);
  const onGone = (id: string) => leftovers.end(id);
  const owner = `${hostname()}-${process.pid}-${randomUUID()}`;
  const expiration = new Expiration({ registry, hook: await openHook(config), owner, onGone, logger });
  const scheduler = new Scheduler(registry, expiration, owner, logger);
  const onChange = ({ id, phase, deadline }: Sandbox) => {
    if (phase === 'expiring' && deadline > Date.now()) expiration.nudge(id);
    scheduler.wake();
  };
  const operations = new Operations({
    ...{ registry, onChange, defaultTimeout: config.defaultTimeout },
    onRemoved: onGone,
  });
  const targets = new TargetReader(config.headerPrefix);
  const { apiKey, onExpiry } = config;
  const metrics = () =>
    renderMetrics({ registry, passages: door.counts, exchanges, expiry: expiration.tally });
  const app = buildPlatform({ operations, targets, apiKey, onExpiry, metrics, logger });
  await app.ready();
  const door: Door = new Door({
    ...{ targets, registry, exchanges, apiKey, logger },
    carrier: new Carrier(pools),
    platform: (request, response) => app.routing(request, response),
  });
  const connections = new Connections();
  const server = createFrontServer(door, connections);
  return {
    server,
    endCurrent: () => connections.endCurrent(),
    start: () => scheduler.start(),
    async stop() {
      await scheduler.stop();
      exchanges.endAll();
      await close(server);
      pools.closeAll();
      leftovers[Symbol.dispose]();
      await app.close();
      await store[Symbol.asyncDispose]();
    },
  };
}

async function openStore({ redis, registry }: Config, logger: Logger): Promise<Store> {
  if (redis !== null) {
    // Its client is a quarter of the time to start, and only needed by those who ask for it.
    const { RedisStore } = await import('./registry/redis.ts');
    return RedisStore.open(redis, logger);
  }
  const path = registry ?? ':memory:';
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  return EmbeddedStore.open(path);
}

async function openHook({ hook, hookTimeout, hookDirectory, path }: Config): Promise<Hook> {
  if (hook === null) return NO_HOOK;
  const limitMs = hookTimeout * 1000;
  if (/^https?:\/\//.test(hook)) return new UrlHook(hook, limitMs);
  return CommandHook.open({ command: hook, directory: hookDirectory, limitMs, path });
}

/** Streams would go on for ever: they end with the gateway. */
async function close(server: Server): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  server.closeAllConnections();
  await closed;
}
