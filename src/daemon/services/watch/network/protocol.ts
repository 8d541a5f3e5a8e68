import type { ErrorKind } from '../../../../base/errors.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';
import type { WatchEventType } from '../local/event.ts';

/** A serialised event. */
export type SentEvent = readonly [type: WatchEventType, name: BytePath, movedFrom: BytePath | null];

/** Messages from the daemon to a network process. `id` identifies the watch. */
export type Request =
  | { readonly type: 'start'; readonly id: number; readonly root: BytePath; readonly recursive: boolean }
  | { readonly type: 'stop'; readonly id: number };

/** Messages from a network process to the daemon. */
export type Report =
  | { readonly type: 'started'; readonly id: number }
  | { readonly type: 'events'; readonly id: number; readonly events: readonly SentEvent[] }
  | { readonly type: 'ended'; readonly id: number; readonly error: SentError | null }
  /** The file system has answered. */
  | { readonly type: 'alive' };

export interface SentError {
  readonly kind: ErrorKind;
  readonly message: string;
}
