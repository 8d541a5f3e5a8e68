/**
 * Runs `work` for each item, at most `width` at a time. After an error, waits for the running ones and throws the first
 * error.
 */
export async function inParallel<T>(
  items: Iterable<T> | AsyncIterable<T>,
  width: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const running = new Set<Promise<void>>();
  const errors: unknown[] = [];
  for await (const item of items) {
    if (errors.length > 0) break;
    const one = work(item)
      .catch((error: unknown) => void errors.push(error))
      .finally(() => running.delete(one));
    running.add(one);
    if (running.size >= width) await Promise.race(running);
  }
  await Promise.all(running);
  if (errors.length > 0) throw errors[0];
}
