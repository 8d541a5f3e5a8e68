import { inject, type TestOptions } from 'vitest';
import type { Snapshot } from './machine.ts';

const { snapshot, reason } = inject('booted');

/** The machine that has booted once for all files; there, where `whenBooted` lets tests run. */
export const booted = snapshot as Snapshot;

/** For everything that goes on from that machine: where there is none, it is told as not run, with the reason. */
export const whenBooted: TestOptions = reason === null ? {} : { skip: true, meta: { notRun: reason } };
