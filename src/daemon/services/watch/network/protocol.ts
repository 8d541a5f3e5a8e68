import type { ErrorKind } from '../../../../base/errors.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';
import type { TreeChange } from '../local/event.ts';

/** A message from the daemon to a network process. `id` identifies the watch. */
export type NetworkRequest =
  | { readonly type: 'start'; readonly id: number; readonly root: BytePath; readonly recursive: boolean }
  | { readonly type: 'stop'; readonly id: number };

/** A message from a network process to the daemon. */
export type NetworkReport =
  | { readonly type: 'started'; readonly id: number }
  | { readonly type: 'changes'; readonly id: number; readonly changes: readonly TreeChange[] }
  | { readonly type: 'ended'; readonly id: number; readonly error: SentError | null }
  /** Tells that the file system has answered. */
  | { readonly type: 'alive' };

export interface SentError {
  readonly kind: ErrorKind;
  readonly message: string;
}
