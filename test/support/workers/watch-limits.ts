// Watches `root` under the limits that the caller has set, and prints the result: watch-limits.ts <root>.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { Watcher } from '../../../src/daemon/services/watch/watcher.ts';
import { testLanes } from '../services/lanes.ts';

const root = process.argv[2] ?? '';
const options = { recursive: true, allowNetworkMounts: false };
const alive = setInterval(() => {}, 1000);

function say(what: string, error: unknown): void {
  const { kind, message } = error as { kind?: string; message?: string };
  process.stdout.write(`${what}: ${kind}: ${message}\n`);
}

using watcher = new Watcher(testLanes);
try {
  using watch = await watcher.watch(root, options);
  process.stdout.write('watching\n');
  for (let n = 0; n < 40; n++) mkdirSync(join(root, `new-${n}`));
  while (await watch.next());
} catch (error) {
  say('failed', error);
}
try {
  // Everything was released.
  using watch = await watcher.watch(root, { ...options, recursive: false });
  process.stdout.write(`again: ${watch.take()?.length}\n`);
} catch (error) {
  say('again', error);
}
clearInterval(alive);
