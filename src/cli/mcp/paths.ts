import { posix } from 'node:path';
import type { Connection } from '../connection/connection.ts';
import { Failure } from '../output/failure.ts';
import { kindOf, statOrNull } from '../transfer/remote-tree.ts';

/** The daemon resolves a link to its end, so another link there has been put in its place meanwhile. */
const MAX_LINKS = 8;

/**
 * The paths that tools may name: all, or those below a root. Links are resolved by the daemon before a path is used, so no link that
 * is there leads out. A process of the sandbox that puts a link there in this moment is not stopped by that.
 */
export class Paths {
  readonly root: string | null;

  constructor(root: string | null) {
    this.root = root === null ? null : posix.resolve('/', root);
  }

  /** Returns the path that a call to the daemon may name. Throws `Failure`. */
  async resolve(connection: Connection, path: string): Promise<string> {
    if (this.root === null) return path;
    const real = await realPath(connection, this.root);
    const wanted = await realPath(connection, posix.resolve(this.root, path));
    if (isWithin(real, wanted)) return wanted;
    throw new Failure('refused', `'${path}' is outside of the root '${this.root}'`);
  }
}

function isWithin(root: string, path: string): boolean {
  return path === root || path.startsWith(root === '/' ? root : `${root}/`);
}

/**
 * Returns an absolute path without links. Names that do not exist stay as they are. Throws `Failure`, also for a link that leads
 * nowhere, because a file would be made where it leads to.
 */
async function realPath(connection: Connection, path: string): Promise<string> {
  let [real, links] = ['/', 0];
  const names = path.split('/').filter((name) => name !== '');
  while (names.length > 0) {
    const next = posix.join(real, names[0] ?? '');
    const entry = await statOrNull(connection, next);
    if (!entry) return posix.join(real, ...names);
    const target = entry.symlinkTarget;
    if (kindOf(entry) !== 'link') {
      real = next;
      names.shift();
    } else if (target === undefined || !target.startsWith('/') || target === next || ++links > MAX_LINKS)
      throw new Failure('refused', `'${next}' is a link that leads nowhere`);
    else {
      // The target is looked at again, so that a daemon that does not resolve links is not believed.
      names.splice(0, 1, ...posix.normalize(target).split('/').filter(Boolean));
      real = '/';
    }
  }
  return real;
}
