import type { InitStep } from './init.ts';

/** Thaws the file system before the steps that write to it, which would wait for the last one otherwise. */
export function fsthawStep(thaw: () => Promise<void>): InitStep {
  return { name: 'fsthaw', runs: 'always', run: () => thaw() };
}
