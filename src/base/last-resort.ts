import process from 'node:process';

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

/** Where the log goes: as much of pino's destination as is needed here. */
interface LogDestination {
  on(event: 'error' | 'drain', listener: () => void): unknown;
  destroy(): void;
}

/**
 * Lets the process go on while its log cannot be written (a full disk), and end then, too: what is kept for the log is
 * tried again for ever at the exit otherwise. To be called before anybody else waits for the exit.
 */
export function surviveFullLog(destination: LogDestination): void {
  let fails = false;
  destination.on('error', () => {
    fails = true;
  });
  destination.on('drain', () => {
    fails = false;
  });
  process.prependOnceListener('exit', () => {
    if (fails) destination.destroy();
  });
}
