// Reads pipes whose writers write on, pauses one of them, and is terminated.
import { parentPort, workerData } from 'node:worker_threads';
import { PipePoller } from '../../../src/daemon/linux/processes/pipe-ends.ts';

const poller = new PipePoller();

const ends = (workerData as number[]).map((descriptor) => poller.read(descriptor, () => {}));
ends[0]?.setPaused(true);
parentPort?.postMessage('reading');
