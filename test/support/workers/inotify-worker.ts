// Watches a directory until it is terminated, and never reads the events.
import { parentPort, workerData } from 'node:worker_threads';
import { IN_CREATE, Inotify } from '../../../src/daemon/linux/inotify/inotify.ts';
import { bytePath } from '../../../src/daemon/linux/paths/byte-path.ts';

const inotify = new Inotify(() => {});
inotify.add(bytePath(String(workerData)), IN_CREATE);
setInterval(() => inotify.mark(), 1);
parentPort?.postMessage('watching');
