import type { InitStep } from './init.ts';

/** Lets go on what a freeze before the pause has stopped, whatever else goes wrong. */
export function thawStep(thaw: () => Promise<void>): InitStep {
  return { name: 'thaw', runs: 'always', run: () => thaw() };
}
