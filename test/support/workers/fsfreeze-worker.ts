import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { isMainThread, Worker, workerData } from 'node:worker_threads';

const ROUNDS = 30;

// Threads that freeze and thaw a file system, and are ended during that, one after the other. Each is the only one
// that has loaded the addon.
const [, , path = ''] = process.argv;
if (isMainThread) {
  for (let round = 0; round < ROUNDS; round++) {
    const worker = new Worker(fileURLToPath(import.meta.url), { workerData: path });
    await once(worker, 'message');
    await worker.terminate();
  }
} else {
  const { parentPort } = await import('node:worker_threads');
  const { freezeFilesystem, thawFilesystem } = await import('../../../src/daemon/linux/system/machine.ts');
  const changes = Array.from({ length: 8 }, (_, i) =>
    (i % 2 ? thawFilesystem : freezeFilesystem)(workerData as string),
  );
  parentPort?.postMessage('under way');
  await Promise.allSettled(changes);
}
