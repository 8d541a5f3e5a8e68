import { native } from './native.ts';

/**
 * Keeps this process' memory, and the access token in it, out of core dumps; processes that it starts have the limit
 * that it was started with (docs/decisions/012-core-dumps.md). Throws EPERM where the limit cannot be set.
 */
export function forbidCoreDumps(): void {
  native.forbidCoreDumps();
}
