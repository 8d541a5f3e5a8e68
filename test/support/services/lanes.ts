import { OpenFile } from '../../../src/daemon/linux/files/open-file.ts';
import { QUICK } from '../../../src/daemon/linux/lanes/lane.ts';
import { Lanes } from '../../../src/daemon/linux/lanes/lanes.ts';

/** Lanes as the daemon has them in a pool of Node's own size. */
export const testLanes = new Lanes({ limitMs: 10_000, threads: 4 });

/** An open file on a file system that answers. */
export const quickFile = (descriptor: number): OpenFile => new OpenFile(descriptor, testLanes, QUICK);

/** The signal of a call that is not aborted. */
export const NEVER = new AbortController().signal;
