import { EnvdError } from '../../base/errors.ts';
import type { Sandbox } from './sandbox.ts';
import { fail } from './transitions.ts';

/** Lets a sandbox go on whose hook has failed. If the hook says that it cannot pause it, the client that waits is told so. */
export function failPause({ refusal: _, ...sandbox }: Sandbox, now: number, error: unknown): Sandbox {
  const isRefusal = error instanceof EnvdError && error.kind === 'unimplemented';
  return { ...fail(sandbox, now), ...(isRefusal && { refusal: error.message }) };
}
