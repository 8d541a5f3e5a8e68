import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rmdir } from 'node:fs/promises';
import { isAbsolute, join, resolve } from 'node:path';
import process from 'node:process';
import { EnvdError } from '../../../base/errors.ts';
import { bytePath } from '../../os/byte-path.ts';
import { about } from '../../os/errno.ts';
import { type Mount, readMounts } from '../../os/mounts.ts';
import { Place } from '../../os/place.ts';
import { runTool } from '../../os/tool.ts';
import type { VolumeMount } from './init-request.ts';

/** The guest's own tools for network mounts, mount(8) and umount(8). */
export interface MountTools {
  /** For NFS; `bind` puts what it has mounted in its place. */
  readonly mount: string;
  readonly bind: string;
  readonly unmount: string;
  /** Where the helper for NFS may be, mount.nfs(8): one of these. */
  readonly helpers: readonly string[];
  /** A server that is not there would be waited for longer than a minute; in milliseconds. */
  readonly limitMs: number;
}

export const SYSTEM_TOOLS: MountTools = {
  mount: 'mount',
  bind: 'mount',
  unmount: 'umount',
  helpers: ['/sbin/mount.nfs', '/usr/sbin/mount.nfs'],
  limitMs: 10_000,
};

/**
 * nfs(5): programs get an error after 2 × 10 s without an answer instead of hanging for good; a mount that cannot be
 * had fails at once.
 */
const OPTIONS = 'soft,proto=tcp,timeo=100,retrans=2,retry=0';

/** umount(8), without looking at what is mounted: it may hang. */
const LAZILY = ['--lazy', '--internal-only', '--no-canonicalize', '--'];

/** Who owns a directory that has to be made on the way. */
const ROOT = { uid: 0, gid: 0 };

interface MountedVolume {
  readonly nfsTarget: string;
  readonly lifecycleID: string | null;
  /** Without links, as the kernel names it. */
  readonly path: string;
}

/** The NFS volumes that the platform has asked for, by the path that it has named. */
export class Volumes {
  readonly #tools: MountTools;
  /** A directory in which only root can make names. */
  readonly #stages: string;
  readonly #mounted = new Map<string, MountedVolume>();

  constructor(tools: MountTools, stages: string) {
    this.#tools = tools;
    this.#stages = stages;
  }

  /**
   * Mounts these volumes and unmounts those of the call before that are not among them. One that is mounted in this
   * life of the guest already stays as it is. Throws `invalid_argument` for a target or path that cannot be one,
   * `permission_denied` for a path that leads over a link of a user's, `failed_precondition` without the tools,
   * `deadline_exceeded` and `unavailable` when a volume cannot be mounted.
   * One call at a time.
   */
  async mount(wanted: readonly VolumeMount[], lifecycleID: string | null): Promise<void> {
    wanted.forEach(verify);
    const paths = new Set(wanted.map(({ path }) => resolve(path)));
    for (const [path, volume] of this.#mounted) if (!paths.has(path)) await this.#unmount(path, volume.path);
    // Parents first: a volume may be mounted inside of another one.
    const sorted = [...wanted].sort((a, b) => (resolve(a.path) < resolve(b.path) ? -1 : 1));
    for (const volume of sorted) await this.#ensure({ ...volume, path: resolve(volume.path) }, lifecycleID);
  }

  async #ensure({ nfsTarget, path }: VolumeMount, lifecycleID: string | null): Promise<void> {
    const ours = this.#mounted.get(path);
    const current = mountAt(ours?.path ?? path);
    if (current && ours?.nfsTarget === nfsTarget && ours.lifecycleID === lifecycleID) return;
    // One that is not known is a former daemon's; its server may be gone, so it is not touched before.
    if (current && (ours || current.kind === 'network')) await this.#unmount(path, ours?.path ?? path);
    if (!this.#tools.helpers.some((helper) => existsSync(helper))) {
      throw new EnvdError(
        'failed_precondition',
        "'mount.nfs' is not installed: it is in nfs-common on Debian",
      );
    }
    const resolved = await this.#mountAt(path, nfsTarget);
    this.#mounted.set(path, { nfsTarget, lifecycleID, path: resolved });
  }

  /**
   * Mounts in two steps: mount(8) takes paths, and who owns a directory on the way could exchange it for a link to
   * /etc. So it mounts where nobody can, and that is bound to a directory that is held open. Returns the path of that.
   */
  async #mountAt(path: string, nfsTarget: string): Promise<string> {
    using place = await openMountPoint(path);
    const action = `cannot mount '${nfsTarget}' at '${path}'`;
    await mkdir(this.#stages, { recursive: true, mode: 0o700 });
    const stage = await mkdtemp(join(this.#stages, 'volume-'));
    try {
      await this.#run(action, this.#tools.mount, ['-t', 'nfs', '-o', OPTIONS, '--', nfsTarget, stage]);
      try {
        const target = `/proc/${process.pid}/fd/${place.directory}/.`;
        await this.#run(action, this.#tools.bind, ['--no-canonicalize', '--bind', stage, target]);
      } finally {
        await this.#run(action, this.#tools.unmount, [...LAZILY, stage]);
      }
    } finally {
      await rmdir(stage);
    }
    return await place.directoryPath();
  }

  /** Lazily, and without looking at what is mounted: it may hang. */
  async #unmount(path: string, resolved: string): Promise<void> {
    if (mountAt(resolved)) {
      await this.#run(`cannot unmount '${path}'`, this.#tools.unmount, [...LAZILY, resolved]);
    }
    this.#mounted.delete(path);
  }

  async #run(action: string, tool: string, args: readonly string[]): Promise<void> {
    try {
      await runTool(tool, args, this.#tools.limitMs);
    } catch (error) {
      if (!(error instanceof EnvdError)) throw error;
      throw new EnvdError(error.kind, `${action}: ${error.message}`, { cause: error });
    }
  }
}

/** The directory at `path`, made if it is missing, held open. */
async function openMountPoint(path: string): Promise<Place> {
  const place = await about(path, () => Place.open(path, true));
  try {
    if (place.owner !== null) {
      const message = `path of a volume leads over a link of user ${place.owner}: '${path}'`;
      throw new EnvdError('permission_denied', message);
    }
    await about(path, () => place.makeDirectory(ROOT));
    return place;
  } catch (error) {
    place[Symbol.dispose]();
    throw error;
  }
}

/** Anything else could be taken for an option, or for another kind of mount. */
function verify({ nfsTarget, path }: VolumeMount): void {
  if (!/^(\[[\da-fA-F:.%\w]+\]|[^-:/\s][^:/\s]*):\/\S*$/.test(nfsTarget)) {
    throw new EnvdError('invalid_argument', `nfs_target must be host:/path: '${nfsTarget}'`);
  }
  if (!isAbsolute(path) || resolve(path) === '/') {
    throw new EnvdError('invalid_argument', `path of a volume must be absolute and not '/': '${path}'`);
  }
}

/** What is mounted at exactly this path, the uppermost. */
function mountAt(path: string): Mount | undefined {
  const bytes = bytePath(Buffer.from(path));
  return readMounts().findLast((mount) => mount.path === bytes);
}
