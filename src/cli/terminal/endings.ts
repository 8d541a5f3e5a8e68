/** These signals end this process. Their numbers are those of Linux. */
const SIGNALS = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 } as const;

/** Calls `restore` when the process exits or gets a signal that ends it, unless the result is disposed of before. */
export function beforeEnd(restore: () => void): Disposable {
  const end = (signal: keyof typeof SIGNALS) => process.exit(128 + SIGNALS[signal]);
  const names = Object.keys(SIGNALS) as (keyof typeof SIGNALS)[];
  process.once('exit', restore);
  for (const name of names) process.on(name, end);
  return {
    [Symbol.dispose]() {
      process.off('exit', restore);
      for (const name of names) process.off(name, end);
    },
  };
}
