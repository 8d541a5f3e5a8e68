import { inject, type TestOptions } from 'vitest';
import type { Snapshot } from './machine.ts';

const { snapshot, reason } = inject('booted');

/** The machine that has booted once for all test files; used only where `whenBooted` allows it. */
export const booted = snapshot as Snapshot;

/** For all tests that start from that machine: without one they are listed as not run, with the reason. */
export const whenBooted: TestOptions = reason === null ? {} : { skip: true, meta: { notRun: reason } };
