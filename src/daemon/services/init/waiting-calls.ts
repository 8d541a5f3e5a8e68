import { EnvdError } from '../../../base/errors.ts';
import type { PlaceRules } from '../../../base/evicting-semaphore.ts';

const LIMIT = 64;

/** The calls of `/init` that wait for something: for the metadata, or for a step that takes long. */
export const WAITING_CALLS: PlaceRules = {
  most: LIMIT,
  dropped: () => new EnvdError('unavailable', `more than ${LIMIT} calls are waiting: try again`),
};
