import type { ServerResponse } from 'node:http';
import { EnvdError } from '../../../base/errors.ts';
import { Semaphore } from '../../../base/semaphore.ts';

/** Limits the number of open streams. */
export class StreamPlaces extends Semaphore {
  /** Takes a place until the response is closed. Throws `resource_exhausted` when there is none. */
  enter(response: ServerResponse): void {
    if (this.takeUntilClosed(response)) return;
    const text = `too many streams: ${this.most} are open (--max-streams): close some, or try again later`;
    throw new EnvdError('resource_exhausted', text);
  }
}
