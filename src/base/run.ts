import process from 'node:process';
import type { Logger } from 'pino';
import { EnvdError, isSystemError } from './errors.ts';
import type { Invocation } from './settings.ts';

/** A stop that takes longer than this is cut short, in milliseconds. */
const STOP_LIMIT_MS = 10_000;

/** The configuration to run with; null when the command line asked for something that has been printed now. */
export function configOrPrint<Config>(invocation: Invocation<Config>): Config | null {
  if ('run' in invocation) return invocation.run;
  const stream = invocation.exitCode === 0 ? process.stdout : process.stderr;
  stream.write(invocation.output);
  process.exitCode = invocation.exitCode;
  return null;
}

/** What a server could not listen for: `unavailable` when the port is taken, `invalid_argument` for an unusable address. */
export function listenError(error: unknown, host: string, port: number): unknown {
  const text = `cannot listen on ${host} port ${port}`;
  if (isSystemError(error, 'EADDRINUSE'))
    return new EnvdError('unavailable', `${text}: the port is taken`, { cause: error });
  if (isSystemError(error, 'EACCES', 'EADDRNOTAVAIL', 'ENOTFOUND', 'EAI_AGAIN', 'EINVAL'))
    return new EnvdError('invalid_argument', `${text}: ${error.code}`, { cause: error });
  return error;
}

/** What is told of an error that nobody has caught; `origin` tells whether it was thrown or a promise's. */
export type OnUncaught = (error: unknown, origin: NodeJS.UncaughtExceptionOrigin) => void;

/**
 * Lets the process go on after an error that nobody has caught, instead of ending it for everybody whom it serves; for
 * programs whose callers share nothing that such an error could leave half done. `report` logs it.
 */
export function surviveUncaught(report: OnUncaught): void {
  // Rejections come here, too, as long as nobody listens for them alone.
  process.on('uncaughtException', (error, origin) => {
    try {
      report(error, origin);
    } catch {
      // What is thrown here would end the process after all.
    }
  });
}

/** How a program stops. */
export interface Stopping<Signal extends NodeJS.Signals> {
  readonly signals: readonly Signal[];
  /** In order, for the first signal. */
  stop(signal: Signal): Promise<void>;
  /** What is done before the exit when that was cut short; `signal` is the first one. */
  cutShort?(signal: Signal): void;
}

/**
 * The first signal stops the program in order; a second one, a failure or too long a stop ends it at once, with exit
 * code 1.
 */
export function stopOnSignals<Signal extends NodeJS.Signals>(
  { signals, stop, cutShort }: Stopping<Signal>,
  logger: Logger,
): void {
  let first: Signal | null = null;
  const exit = (signal: Signal) => {
    try {
      cutShort?.(signal);
    } finally {
      process.exit(1);
    }
  };
  const onSignal = async (signal: Signal) => {
    if (first !== null) exit(first);
    first = signal;
    logger.info({ signal }, 'stopping');
    setTimeout(() => {
      logger.error({ limitMs: STOP_LIMIT_MS }, 'stop took too long');
      exit(signal);
    }, STOP_LIMIT_MS).unref();
    try {
      await stop(signal);
    } catch (error) {
      logger.error({ err: error }, 'stop failed');
      exit(signal);
    }
  };
  for (const signal of signals) process.on(signal, () => void onSignal(signal));
}
