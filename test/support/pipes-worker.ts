// Reads pipes whose writers write on, pauses one of them, and is terminated.
import { parentPort, workerData } from 'node:worker_threads';
import { ReadEnd } from '../../src/daemon/os/pipe-ends.ts';

const ends = (workerData as number[]).map((descriptor) => new ReadEnd(descriptor, () => {}));
ends[0]?.setPaused(true);
parentPort?.postMessage('reading');
