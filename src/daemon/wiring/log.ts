import process from 'node:process';
import pino, { type Logger } from 'pino';
import { within } from '../../base/abort.ts';
import { messageOf } from '../../base/errors.ts';
import { PausableOutput } from '../../base/pausable-output.ts';
import { listenToDebug } from '../../base/program/debug.ts';
import { openLogOutput } from '../../base/program/log.ts';
import type { Config } from '../config/config.ts';
import { post } from '../linux/network/http-post.ts';
import { isJournal, withPriority } from '../linux/system/systemd.ts';
import { LogCollector, UNNAMED_LIMIT_BYTES } from '../services/collector/log-collector.ts';
import { LogQueue } from '../services/collector/log-queue.ts';
import { NO_METADATA } from '../services/init/metadata.ts';
import type { MetadataReader } from '../services/init/metadata-reader.ts';
import type { Pause } from './pause.ts';

/** The log, and where its lines go. */
export interface Log {
  readonly logger: Logger;
  readonly output: PausableOutput;
  /** The lines for the collector; null: there is no collector. */
  readonly queue: LogQueue | null;
  /** Resolves when all lines are written, or after five seconds, when the reader of the log has stalled. */
  written(): Promise<void>;
  /** Tells whether `written` has found that the reader has stalled. */
  readonly isStalled: boolean;
}

/** The last lines may take this long, in milliseconds: less than a stop, and more than a busy machine needs. */
const LAST_LINES_MS = 5000;

/** Opens the log with an output that can be held, and with a queue for the collector if there may be one. */
export function openLog({ journalStream, logLevel, logCollector, metadataService }: Config): Log {
  const mayBeCollected = logCollector === null ? metadataService !== null : logCollector !== 'off';
  const queue = mayBeCollected ? new LogQueue(UNNAMED_LIMIT_BYTES) : null;
  const standardOutput = openLogOutput();
  let pending: PromiseWithResolvers<boolean> | null = null;
  let isStalled = false;
  const output = new PausableOutput((lines) => {
    pending ??= Promise.withResolvers();
    standardOutput.write(lines);
  });
  standardOutput.on('drain', () => {
    pending?.resolve(true);
    pending = null;
  });
  standardOutput.on('drop', (lines) => output.lose(lines));
  // This runs before the `exit` listener of the destination, which writes the destination's last lines, and would wait for a
  // reader that has stalled.
  process.prependOnceListener('exit', () => {
    if (isStalled) standardOutput.destroy();
    else output.flush();
  });
  const inJournal = isJournal(1, journalStream);
  const write = (line: string) => {
    output.write(inJournal ? withPriority(line) : line);
    queue?.write(line);
  };
  // Lines have no pid and host of the daemon: their `pid` is that of the process that they are about.
  const logger = pino({ level: logLevel, base: null }, { write });
  if (logger.isLevelEnabled('debug'))
    listenToDebug(({ service, what, details }) => logger.debug({ service, ...details }, what));
  const written = async () => {
    output.flush();
    isStalled = !(await within(LAST_LINES_MS, pending?.promise ?? Promise.resolve(true), () => false));
  };
  return {
    logger,
    output,
    queue,
    written,
    get isStalled() {
      return isStalled;
    },
  };
}

/** Sends the log to the configured collector, or to the one in the metadata. Returns null if there cannot be one. */
export function createLogCollector(
  { logCollector }: Config,
  { queue, logger }: Log,
  { lock, isFrozen }: Pause,
  metadata: MetadataReader | null,
): LogCollector | null {
  if (queue === null) return null;
  const collector = new LogCollector({
    queue,
    url: logCollector === 'off' ? null : logCollector,
    isPaused: () => lock.isHeld || isFrozen(),
    refresh: () => metadata?.refresh(),
    post,
    onFailure: (error) =>
      logger.warn({ reason: messageOf(error) }, 'cannot send the log to its collector: trying again'),
  });
  if (metadata === null) collector.name(NO_METADATA);
  metadata?.on('read', (named) => collector.name(named));
  return collector;
}
