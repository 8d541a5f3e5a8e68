import type { ErrorKind } from '../../../base/errors.ts';
import type { BytePath } from '../../os/byte-path.ts';
import type { WatchEventType } from './event.ts';

/** An event on its way: type, name, movedFrom. */
export type SentEvent = readonly [type: WatchEventType, name: BytePath, movedFrom: BytePath | null];

/** What the daemon tells a network process. `id` names the watch. */
export type Request =
  | { readonly type: 'start'; readonly id: number; readonly root: BytePath; readonly recursive: boolean }
  | { readonly type: 'stop'; readonly id: number };

/** What a network process tells the daemon. */
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
