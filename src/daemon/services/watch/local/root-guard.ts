import { basename, dirname } from 'node:path/posix';
import { isSystemError } from '../../../../base/errors.ts';
import {
  IN_DELETE,
  IN_ISDIR,
  IN_MASK_ADD,
  IN_MOVE_SELF,
  IN_MOVED_TO,
  type InotifyEvent,
} from '../../../linux/inotify/inotify.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';
import type { KernelWatches, Subscriber } from './kernel-watches.ts';

/**
 * Watches the ancestors of a root for changes that the root's own watch does not report: the rename of an ancestor, and the
 * removal of the root while a process has it open, because IN_DELETE_SELF comes only when it is closed. `onSuspicion` is
 * called when `root` may have left its path. Throws inotify_add_watch(2)'s errors.
 */
export function guardRoot(
  kernel: KernelWatches,
  root: BytePath,
  onSuspicion: (type: 'remove' | 'rename') => void,
): Disposable {
  using watches = new DisposableStack();
  const watch = (path: BytePath, mask: number, onEvent: (event: InotifyEvent) => void) => {
    const subscriber: Subscriber = { onEvent: (event) => event.mask & mask && onEvent(event) };
    try {
      const descriptor = kernel.subscribe(path, mask | IN_MASK_ADD, subscriber);
      watches.defer(() => kernel.unsubscribe(descriptor, subscriber));
    } catch (error) {
      // The daemon may not be root, and may be unable to read an ancestor. That one is not watched then.
      if (!isSystemError(error, 'EACCES')) throw error;
    }
  };
  const parent = dirname(root);
  watch(parent, IN_DELETE | IN_MOVED_TO, ({ mask, name }) => {
    if (mask & IN_ISDIR && name === basename(root)) onSuspicion('remove');
  });
  for (let above = parent; above !== '/'; above = dirname(above)) {
    watch(above, IN_MOVE_SELF, () => onSuspicion('rename'));
  }
  return watches.move();
}
