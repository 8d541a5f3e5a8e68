import { dirname } from 'node:path';
import type { Logger } from 'pino';
import { makePrivateDirectory } from '../base/program/make-directory.ts';
import type { GatewayConfig } from './config/config.ts';
import { EventDelivery } from './expiry/event-delivery.ts';
import { askHook, type HookQuestion } from './hooks/ask.ts';
import { CommandHook } from './hooks/command-hook.ts';
import { type Hook, type Hooks, UrlHook } from './hooks/hook.ts';
import { listMachines } from './hooks/list-hook.ts';
import { Signer } from './hooks/signer.ts';
import { EmbeddedStore } from './registry/embedded.ts';
import type { Store } from './registry/registry.ts';
import type { SharedState } from './registry/shared-state.ts';

/** An open registry and its secret key, which all gateways of the registry share. */
export interface Opened {
  readonly store: Store;
  readonly key: string;
}

/** Opens the registry that the configuration names. Throws `unavailable` or `invalid_argument` when it cannot be used. */
export async function openStore(config: GatewayConfig, logger: Logger): Promise<Opened> {
  const store = await makeStore(config, logger);
  try {
    return { store, key: await store.key() };
  } catch (error) {
    await store[Symbol.asyncDispose]();
    throw error;
  }
}

async function makeStore(config: GatewayConfig, logger: Logger): Promise<Store> {
  const { redis, redisSentinels, redisCluster, redisReplicas: replicas, registry } = config;
  if (redis !== null) {
    // The client of Redis is imported only when it is needed, because loading it makes the start slower.
    const { RedisStore } = await import('./registry/redis.ts');
    const { askSentinels } = await import('./registry/sentinels.ts');
    const { askCluster } = await import('./registry/cluster.ts');
    let locate = async () => redis;
    if (redisSentinels) locate = askSentinels(redis, redisSentinels);
    if (redisCluster) locate = askCluster(redis, redisCluster);
    return RedisStore.open({ locate, replicas, isCluster: redisCluster !== null }, logger);
  }
  if (registry === null) throw new Error('the configuration has neither a registry nor Redis');
  await makePrivateDirectory(dirname(registry));
  return EmbeddedStore.open(registry);
}

/** Creates the configured hooks. Throws `invalid_argument` when `--hook-directory` cannot be used. */
export async function openHooks(config: GatewayConfig): Promise<Hooks> {
  const open = async (hook: string | null) => (hook === null ? null : openHook(hook, config));
  const { hook, killHook, resumeHook, createHook } = config;
  return {
    expire: await open(hook),
    kill: await open(killHook),
    resume: await open(resumeHook),
    create: await open(createHook),
  };
}

/** Returns a function that asks the list hook, or null if there is none. */
export function openListHook(config: GatewayConfig) {
  const { listHook: hook } = config;
  if (hook === null) return null;
  return (signal: AbortSignal) => listMachines(askOptions(hook, config), signal);
}

/** The answer of the hook for extensions may have this many bytes. */
const PERMIT_LIMIT = 16 * 1024;

/** Returns a function that asks the hook for extensions, or null if there is none. */
export function openExtendHook(config: GatewayConfig) {
  const { extendHook: hook } = config;
  if (hook === null) return null;
  const never = new AbortController().signal;
  return (question: HookQuestion) => askHook(askOptions(hook, config), question, PERMIT_LIMIT, never);
}

/** Returns what sends events to the event hook, or null if there is none. */
export function openEventHook(
  { eventHook: url, hookSecret }: GatewayConfig,
  shared: SharedState,
  owner: string,
  logger: Logger,
): EventDelivery | null {
  const signer = new Signer(hookSecret ?? []);
  return url === null ? null : new EventDelivery({ shared, url, signer, owner, logger });
}

function askOptions(hook: string, { hookTimeout, hookSecret, path }: GatewayConfig) {
  return { hook, limitMs: hookTimeout * 1000, path, signer: new Signer(hookSecret ?? []) };
}

async function openHook(hook: string, config: GatewayConfig): Promise<Hook> {
  const { hookTimeout, hookDirectory, hookSecret, path } = config;
  const limitMs = hookTimeout * 1000;
  if (/^https?:\/\//.test(hook)) return new UrlHook(hook, limitMs, new Signer(hookSecret ?? []));
  return CommandHook.open({ command: hook, directory: hookDirectory, limitMs, path });
}
