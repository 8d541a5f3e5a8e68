// Watches a directory until it is terminated, and never reads the events.
import { parentPort, workerData } from 'node:worker_threads';
import { bytePath } from '../../src/daemon/os/byte-path.ts';
import { IN_CREATE, Inotify } from '../../src/daemon/os/inotify.ts';

const inotify = new Inotify(() => {});
inotify.add(bytePath(String(workerData)), IN_CREATE);
setInterval(() => inotify.mark(), 1);
parentPort?.postMessage('watching');
