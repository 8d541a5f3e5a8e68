import { onTestFinished } from 'vitest';

/** Starts something that ends with the test. */
export async function owned<T extends AsyncDisposable>(starting: Promise<T>): Promise<T> {
  const started = await starting;
  onTestFinished(() => started[Symbol.asyncDispose]());
  return started;
}
