import { onAbort } from '../../../../base/abort.ts';
import { applyEvent } from './entry-events.ts';
import { guardRoot } from './root-guard.ts';
import { surveyTree } from './survey.ts';
import { Tree, type TreeOptions } from './tree.ts';

/**
 * Watches one directory with inotify; resolves when everything is watched. Throws `resource_exhausted` at the kernel's limits,
 * `not_found` when the directory does not exist, and the reason of `signal`.
 */
export async function watchLocally(options: TreeOptions, signal?: AbortSignal): Promise<Disposable> {
  using owned = new DisposableStack();
  const tree = owned.use(new Tree(options, applyEvent));
  const { kernel, ground } = options;
  owned.use(guardRoot(kernel, ground.path, (type) => tree.checkRoot(type)));
  const ignore = signal ? onAbort(signal, () => tree.fail(signal.reason)) : () => {};
  try {
    surveyTree(tree).catch((error) => tree.fail(error));
    await tree.live;
  } finally {
    ignore();
  }
  return owned.move();
}
