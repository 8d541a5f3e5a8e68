import process from 'node:process';
import type { Logger } from 'pino';
import { EnvdError, isSystemError } from '../errors.ts';
import type { Invocation } from './settings.ts';

/** The maximum duration of an orderly stop, unless the program says otherwise. */
const STOP_LIMIT_MS = 10_000;

/** The configuration to run with; otherwise prints the output, sets the exit code and returns null. */
export function configOrPrint<Config>(invocation: Invocation<Config>): Config | null {
  if ('run' in invocation) return invocation.run;
  const stream = invocation.exitCode === 0 ? process.stdout : process.stderr;
  stream.write(invocation.output);
  process.exitCode = invocation.exitCode;
  return null;
}

/**
 * Explains an error of listen(2): `unavailable` when the port is taken, `invalid_argument` for an unusable address. `holder` tells who
 * has the port, or null.
 */
export function listenError(
  error: unknown,
  host: string,
  port: number,
  holder: () => string | null = () => null,
): unknown {
  const text = `cannot listen on ${host} port ${port}`;
  if (isSystemError(error, 'EADDRINUSE')) {
    const who = holder();
    const taken = who === null ? 'the port is taken' : `the port is taken by ${who}`;
    return new EnvdError('unavailable', `${text}: ${taken}`, { cause: error });
  }
  if (isSystemError(error, 'EACCES', 'EADDRNOTAVAIL', 'EAFNOSUPPORT', 'ENOTFOUND', 'EAI_AGAIN', 'EINVAL'))
    return new EnvdError('invalid_argument', `${text}: ${error.code}`, { cause: error });
  return error;
}

/** Receives an uncaught error; `origin`: an exception or a rejected promise. */
export type OnUncaught = (error: unknown, origin: NodeJS.UncaughtExceptionOrigin) => void;

/**
 * Keeps the process running after uncaught errors. Only for programs whose requests share no state that such an error
 * could leave inconsistent. `report` logs the error.
 */
export function surviveUncaught(report: OnUncaught): void {
  // Includes rejections, as there is no listener for 'unhandledRejection'.
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
  /** The maximum duration of the orderly stop; default: 10 s. */
  readonly limitMs?: number;
  /** The orderly stop, at the first signal. */
  stop(signal: Signal): Promise<void>;
  /** What the orderly stop waits for, for the log of one that takes too long. */
  waitsFor?(): string;
  /** Called before the exit when the orderly stop did not complete; `signal` is the first one. */
  beforeForcedExit?(signal: Signal): void;
}

/**
 * Stops the program in order at the first signal. Exits immediately with code 1 at a second signal, when the stop fails,
 * and when it takes longer than its limit.
 */
export function stopOnSignals<Signal extends NodeJS.Signals>(
  { signals, stop, waitsFor, beforeForcedExit, limitMs = STOP_LIMIT_MS }: Stopping<Signal>,
  logger: Logger,
): void {
  let first: Signal | null = null;
  const exit = (signal: Signal) => {
    try {
      beforeForcedExit?.(signal);
    } finally {
      process.exit(1);
    }
  };
  const onSignal = async (signal: Signal) => {
    if (first !== null) exit(first);
    first = signal;
    logger.info({ signal }, 'stopping');
    setTimeout(() => {
      logger.error({ limitMs, waitsFor: waitsFor?.() }, 'stop took too long');
      exit(signal);
    }, limitMs).unref();
    try {
      await stop(signal);
    } catch (error) {
      logger.error({ err: error }, 'stop failed');
      exit(signal);
    }
  };
  for (const signal of signals) process.on(signal, () => void onSignal(signal));
}
