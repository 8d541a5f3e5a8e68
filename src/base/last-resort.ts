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
