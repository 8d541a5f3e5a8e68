import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rmdir } from 'node:fs/promises';
import { isAbsolute, join, resolve } from 'node:path';
import process from 'node:process';
import { EnvdError } from '../../../base/errors.ts';
import { KeyedQueue } from '../../../base/exclusion.ts';
import { debug } from '../../../base/program/debug.ts';
import { PathHandle } from '../../linux/files/place.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';
import { bytePath } from '../../linux/paths/byte-path.ts';
import { isAtOrBelow, type Mount, mountIdOf, readMounts } from '../../linux/paths/mounts.ts';
import { explaining } from '../../linux/system/errno.ts';
import { runTool } from '../../linux/system/tool.ts';
import type { VolumeMount } from './init-request.ts';
import { findMount, unmount } from './unmount.ts';

/** The guest's tools for network mounts. Source: mount(8), umount(8). */
export interface MountTools {
  /** The tool that mounts NFS. */
  readonly mount: string;
  /** The tool that binds the mount to its mount point then. */
  readonly bind: string;
  readonly unmount: string;
  /** The paths where mount.nfs(8) may be. */
  readonly helpers: readonly string[];
  /** How long each tool may take, in milliseconds. By itself mount(8) waits over a minute for a server that is not there. */
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
 * With these options operations fail after 2 × 10 s without a response, instead of blocking forever, and a mount that fails
 * is not tried again. Source: nfs(5).
 */
const OPTIONS = 'soft,proto=tcp,timeo=100,retrans=2,retry=0';

/** Options of umount(8) that avoid any access to the mounted file system, because it may block. */
const LAZILY = ['--lazy', '--internal-only', '--no-canonicalize', '--'];

const MAX_CONCURRENT = 8;

const ROOT = { uid: 0, gid: 0 };

interface MountedVolume {
  readonly nfsTarget: string;
  readonly lifecycleID: string | null;
  readonly mount: Mount;
}

/** A mounted volume, as it is handed to a later program. */
export interface VolumeState extends MountedVolume {
  readonly path: string;
}

/** Mounts the NFS volumes that the platform requests. */
export class Volumes {
  readonly #lanes: Lanes;
  readonly #tools: MountTools;
  /** A directory for temporary mount points, which only root can write to. */
  readonly #stagingDirectory: string;
  readonly #mounted = new Map<string, MountedVolume>();
  /** Binds one volume at a time, because a new mount is recognized by comparing what was mounted before and after. */
  readonly #binds = new KeyedQueue('bind a volume', MAX_CONCURRENT);

  constructor(tools: MountTools, stagingDirectory: string, lanes: Lanes) {
    this.#lanes = lanes;
    this.#tools = tools;
    this.#stagingDirectory = stagingDirectory;
  }

  get state(): VolumeState[] {
    return [...this.#mounted].map(([path, volume]) => ({ path, ...volume }));
  }

  continueFrom(volumes: readonly VolumeState[]): void {
    for (const { path, ...volume } of volumes) this.#mounted.set(path, volume);
  }

  /**
   * Mounts these volumes, and unmounts those of the previous call that are not among them. A volume that was mounted with the
   * same `lifecycleID` stays mounted. A volume whose server does not answer delays only volumes inside of it. Call it again
   * only when the call before has ended. When everything was tried, it throws the first error: `invalid_argument` for an
   * invalid target or path, `permission_denied` for a path through a user's symbolic link, `failed_precondition` without the
   * tools, `deadline_exceeded` or `unavailable` when a volume cannot be mounted.
   */
  async mount(wanted: readonly VolumeMount[], lifecycleID: string | null): Promise<void> {
    wanted.forEach(verify);
    const volumes = wanted.map((volume) => ({ ...volume, path: resolve(volume.path) }));
    const paths = new Set(volumes.map(({ path }) => path));
    const left = [...this.#mounted].filter(([path]) => !paths.has(path));
    const results: PromiseSettledResult<void>[] = [];
    for (const [path, { mount }] of left)
      results.push(...(await Promise.allSettled([this.#unmount(path, mount)])));
    results.push(...(await Promise.allSettled(this.#ensureAll(volumes, lifecycleID))));
    const failure = results.find((result) => result.status === 'rejected');
    if (failure) throw failure.reason;
  }

  /** Mounts all volumes. One that is inside of another volume waits for that. */
  #ensureAll(volumes: readonly VolumeMount[], lifecycleID: string | null): Promise<void>[] {
    const sorted = [...volumes].sort((a, b) => (a.path < b.path ? -1 : 1));
    const ensured: Promise<void>[] = [];
    for (const [index, volume] of sorted.entries()) {
      const parent = sorted.slice(0, index).findLastIndex(({ path }) => isAtOrBelow(path, volume.path));
      const ensure = async () => {
        await ensured[index - MAX_CONCURRENT]?.catch(() => {});
        await ensured[parent];
        await this.#ensure(volume, lifecycleID);
      };
      ensured.push(ensure());
    }
    return ensured;
  }

  async #ensure({ nfsTarget, path }: VolumeMount, lifecycleID: string | null): Promise<void> {
    const ours = this.#mounted.get(path);
    const current = ours ? findMount(ours.mount) : mountAt(path);
    const isKept = ours?.nfsTarget === nfsTarget && ours.lifecycleID === lifecycleID;
    if (isKept && current?.path === ours.mount.path) return;
    // An unknown mount was made by a previous daemon. It is unmounted without a look at it, because its server may be
    // gone.
    if (current && (ours || current.kind === 'network')) await this.#unmount(path, current);
    if (!this.#tools.helpers.some((helper) => existsSync(helper))) {
      throw new EnvdError(
        'failed_precondition',
        "'mount.nfs' is not installed: install it (Debian: apt-get update && apt-get install nfs-common)",
      );
    }
    const mount = await this.#mountAt(path, nfsTarget);
    // A volume that had the same mount id was unmounted by somebody else.
    for (const [other, volume] of this.#mounted)
      if (volume.mount.id === mount.id) this.#mounted.delete(other);
    this.#mounted.set(path, { nfsTarget, lifecycleID, mount });
    debug('volumes', 'volume mounted', () => ({ mounted: this.#mounted.size }));
  }

  /**
   * Mounts a volume in the staging directory, and then binds it to the mount point, which is held open. Mount(8) takes paths,
   * so with a single step the owner of a parent directory could replace it by a symbolic link to /etc.
   */
  async #mountAt(path: string, nfsTarget: string): Promise<Mount> {
    using place = await openMountPoint(path, this.#lanes);
    const action = `cannot mount '${nfsTarget}' at '${path}'`;
    await mkdir(this.#stagingDirectory, { recursive: true, mode: 0o700 });
    const stage = await mkdtemp(join(this.#stagingDirectory, 'volume-'));
    try {
      await this.#run(action, this.#tools.mount, ['-t', 'nfs', '-o', OPTIONS, '--', nfsTarget, stage]);
      try {
        return await this.#binds.run('', () => this.#bind(action, stage, place));
      } finally {
        await this.#run(action, this.#tools.unmount, [...LAZILY, stage]);
      }
    } finally {
      await rmdir(stage);
    }
  }

  async #bind(action: string, stage: string, { directory }: PathHandle): Promise<Mount> {
    const before = readMounts();
    const target = `/proc/${process.pid}/fd/${directory}/.`;
    await this.#run(action, this.#tools.bind, ['--no-canonicalize', '--bind', stage, target]);
    return newMount(before, stage, mountIdOf(directory));
  }

  async #unmount(path: string, mount: Mount): Promise<void> {
    const { unmount: tool, limitMs } = this.#tools;
    const detach = (target: string) => runTool(tool, [...LAZILY, target], limitMs);
    await doing(`cannot unmount '${path}'`, () => unmount(mount, this.#lanes, detach));
    this.#mounted.delete(path);
    debug('volumes', 'volume unmounted', () => ({ mounted: this.#mounted.size }));
  }

  #run(action: string, tool: string, args: readonly string[]): Promise<void> {
    return doing(action, () => runTool(tool, args, this.#tools.limitMs));
  }
}

async function doing(action: string, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof EnvdError)) throw error;
    throw new EnvdError(error.kind, `${action}: ${error.message}`, { cause: error });
  }
}

/** Opens the directory at `path`; creates it if it is missing. Throws `permission_denied` when a user's link leads there. */
async function openMountPoint(path: string, lanes: Lanes): Promise<PathHandle> {
  const place = await explaining(path, () => PathHandle.open(path, true, lanes));
  try {
    if (place.owner !== null) {
      const message = `path of a volume must not pass through a symbolic link of user ${place.owner}: '${path}'`;
      throw new EnvdError('permission_denied', message);
    }
    await explaining(path, () => place.makeDirectory(ROOT));
    return place;
  } catch (error) {
    place[Symbol.dispose]();
    throw error;
  }
}

/** Throws `invalid_argument` for anything that mount(8) could take for an option or for another type of mount. */
function verify({ nfsTarget, path }: VolumeMount): void {
  if (!/^(\[[\da-fA-F:.%\w]+\]|[^-:/\s][^:/\s]*):\/\S*$/.test(nfsTarget)) {
    throw new EnvdError('invalid_argument', `nfs_target must be host:/path: '${nfsTarget}'`);
  }
  if (!isAbsolute(path) || resolve(path) === '/') {
    throw new EnvdError('invalid_argument', `path of a volume must be absolute and not '/': '${path}'`);
  }
}

/**
 * Finds the mount that binding `stage` has made on the mount `parent`. Ids alone do not tell, because the kernel gives the id
 * of a mount that was unmounted meanwhile to the next one.
 */
function newMount(before: readonly Mount[], stage: string, parent: number): Mount {
  const content = mountAt(stage)?.content;
  const isThere = (mount: Mount) => mount.content === content && mount.parent === parent;
  const nameOf = ({ id, path }: Mount) => `${id} ${path}`;
  const known = new Set(before.filter(isThere).map(nameOf));
  const made = readMounts().find((mount) => isThere(mount) && !known.has(nameOf(mount)));
  if (!made) throw new EnvdError('unavailable', `the new mount at '${stage}' is gone: try again`);
  return made;
}

/** Returns the topmost mount at exactly this path. */
function mountAt(path: string): Mount | undefined {
  const bytes = bytePath(Buffer.from(path));
  return readMounts().findLast((mount) => mount.path === bytes);
}
