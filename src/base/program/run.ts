import process from 'node:process';
import type { Logger } from 'pino';
import { EnvdError, isSystemError } from '../errors.ts';
import type { Invocation } from './settings.ts';

/** An orderly stop may take this long, unless the program sets another limit. */
const STOP_LIMIT_MS = 10_000;

/** Returns the configuration to run with. If there is output instead, prints it, sets the exit code and returns null. */
export function configOrPrint<Config>(invocation: Invocation<Config>): Config | null {
  if ('run' in invocation) return invocation.run;
  const stream = invocation.exitCode === 0 ? process.stdout : process.stderr;
  stream.write(invocation.output);
  process.exitCode = invocation.exitCode;
  return null;
}

/**
 * Explains an error of listen(2): `unavailable` when the port is taken, `invalid_argument` for an unusable address. `holder` is
 * the program that has the port; null: it is not known.
 */
export function listenError(
  error: unknown,
  host: string,
  port: number,
  holder: string | null = null,
): unknown {
  const text = `cannot listen on ${host} port ${port}`;
  if (isSystemError(error, 'EADDRINUSE')) {
    const taken = holder === null ? 'the port is taken' : `the port is taken by ${holder}`;
    return new EnvdError('unavailable', `${text}: ${taken}`, { cause: error });
  }
  if (isSystemError(error, 'EACCES', 'EADDRNOTAVAIL', 'EAFNOSUPPORT', 'ENOTFOUND', 'EAI_AGAIN', 'EINVAL'))
    return new EnvdError('invalid_argument', `${text}: ${error.code}`, { cause: error });
  return error;
}

/** Receives an uncaught error. `origin` says whether it was an exception or a rejected promise. */
export type OnUncaught = (error: unknown, origin: NodeJS.UncaughtExceptionOrigin) => void;

/**
 * Keeps the process running after uncaught errors, which `report` logs. Requests of such a program must not share state that an
 * uncaught error could leave inconsistent.
 */
export function surviveUncaught(report: OnUncaught): void {
  // Without a listener for 'unhandledRejection', rejections are uncaught exceptions too.
  process.on('uncaughtException', (error, origin) => {
    try {
      report(error, origin);
    } catch {
      // An error in this handler would end the process.
    }
  });
}

/** How a program stops. */
export interface Stopping<Signal extends NodeJS.Signals> {
  readonly signals: readonly Signal[];
  /** The orderly stop may take this long; default: 10 s. */
  readonly limitMs?: number;
  /** Stops the program in order, at the first signal. */
  stop(signal: Signal): Promise<void>;
  /** Returns what a stop in progress waits for. The log names it when the stop takes too long. */
  waitsFor?(): string;
  /** Is called before the exit when the orderly stop did not complete, and awaited. `signal` is the first one. */
  beforeForcedExit?(signal: Signal): Promise<void>;
}

/**
 * Stops the program in order at the first signal. Exits at once with code 1 at a second signal, when the stop fails, and when the
 * stop takes longer than its limit.
 */
export function stopOnSignals<Signal extends NodeJS.Signals>(
  { signals, stop, waitsFor, beforeForcedExit, limitMs = STOP_LIMIT_MS }: Stopping<Signal>,
  logger: Logger,
): void {
  let first: Signal | null = null;
  const exit = async (signal: Signal): Promise<void> => {
    try {
      await beforeForcedExit?.(signal);
    } finally {
      process.exit(1);
    }
  };
  const onSignal = async (signal: Signal) => {
    if (first !== null) return exit(first);
    first = signal;
    logger.info({ signal }, 'stopping');
    setTimeout(() => {
      logger.error({ limitMs, waitsFor: waitsFor?.() }, 'the stop took too long: exiting without waiting');
      void exit(signal);
    }, limitMs).unref();
    try {
      await stop(signal);
    } catch (error) {
      logger.error({ err: error }, 'the stop failed: exiting');
      await exit(signal);
    }
  };
  for (const signal of signals) process.on(signal, () => void onSignal(signal));
}
