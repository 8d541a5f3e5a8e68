import type { ErrorKind } from '../../../../base/errors.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';
import type { TreeChange } from '../local/event.ts';

/** Messages from the daemon to a network process. `id` identifies the watch. */
export type NetworkRequest =
  | { readonly type: 'start'; readonly id: number; readonly root: BytePath; readonly recursive: boolean }
  | { readonly type: 'stop'; readonly id: number };

/** Messages from a network process to the daemon. */
export type NetworkReport =
  | { readonly type: 'started'; readonly id: number }
  | { readonly type: 'changes'; readonly id: number; readonly changes: readonly TreeChange[] }
  | { readonly type: 'ended'; readonly id: number; readonly error: SentError | null }
  /** The file system has answered. */
  | { readonly type: 'alive' };

export interface SentError {
  readonly kind: ErrorKind;
  readonly message: string;
}
