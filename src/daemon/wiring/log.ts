import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import type { HeldOutput } from '../../base/held-output.ts';
import type { Config } from '../config/config.ts';
import { post } from '../linux/network/http-post.ts';
import { LogCollector, UNNAMED_LIMIT_BYTES } from '../services/collector/log-collector.ts';
import { LogQueue } from '../services/collector/log-queue.ts';
import { NO_METADATA } from '../services/init/metadata.ts';

/** Where the lines of the log go. */
export interface Log {
  readonly output: HeldOutput;
  /** Lines for the collector; null: there is none. */
  readonly queue: LogQueue | null;
}

/** Null when no collector can be named. */
export function createLogQueue({
  logCollector,
  metadataService,
}: Pick<Config, 'logCollector' | 'metadataService'>): LogQueue | null {
  const isPossible = logCollector === null ? metadataService !== null : logCollector !== 'off';
  return isPossible ? new LogQueue(UNNAMED_LIMIT_BYTES) : null;
}

export interface LogCollectorDependencies {
  readonly queue: LogQueue | null;
  readonly logger: Logger;
  /** Whether a pause of the VM is being prepared, or something is frozen. */
  readonly isPaused: () => boolean;
  /** Reads the metadata. */
  readonly refresh: () => void;
}

/** Sends the log to the configured collector, or to the one that the metadata service names. */
export function createLogCollector(
  { logCollector, metadataService }: Pick<Config, 'logCollector' | 'metadataService'>,
  { queue, logger, isPaused, refresh }: LogCollectorDependencies,
): LogCollector | null {
  if (queue === null) return null;
  const collector = new LogCollector({
    queue,
    url: logCollector === 'off' ? null : logCollector,
    isPaused,
    refresh,
    post,
    onFailure: (error) => logger.warn({ reason: messageOf(error) }, 'cannot send the log: trying again'),
  });
  if (metadataService === null) collector.name(NO_METADATA);
  return collector;
}
