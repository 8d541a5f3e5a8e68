import { once } from 'node:events';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import pino from 'pino';
import { openLogOutput } from '../base/program/log.ts';
import { configOrPrint, listenError, stopOnSignals } from '../base/program/run.ts';
import { composeKubernetes } from './compose.ts';
import { type KubernetesConfig, readKubernetesConfig } from './config/config.ts';

/** Beyond the time of a Pod, a stop may take this long, in ms. */
const STOP_MS = 5000;

/** Runs the program until a signal stops it. Throws an `EnvdError` when it cannot start. */
export async function runKubernetes(): Promise<void> {
  const config = configOrPrint(readKubernetesConfig());
  if (config === null) return;
  const logger = pino({ level: config.logLevel }, openLogOutput());
  const hooks = composeKubernetes(config, logger);
  await listen(hooks.server, config);
  const stop = async () => {
    await hooks.stop();
    logger.info('stopped');
  };
  const limitMs = config.podTimeout * 1000 + STOP_MS;
  stopOnSignals({ signals: ['SIGTERM', 'SIGINT', 'SIGHUP'], stop, limitMs }, logger);
  await hooks.start();
  const { address, port } = hooks.server.address() as AddressInfo;
  logger.info({ address, port, namespace: config.namespace, version: config.version }, 'ready');
}

async function listen(server: Server, { host, port }: KubernetesConfig): Promise<void> {
  try {
    await once(server.listen({ host, port }), 'listening');
  } catch (error) {
    throw listenError(error, host, port);
  }
}
