import { accessSync, constants, existsSync, readFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { release } from 'node:os';
import { dirname } from 'node:path';
import { isSystemError, messageOf } from '../../../base/errors.ts';
import { O_TMPFILE } from '../../linux/paths/open-flags.ts';
import { type Capability, missingCapabilities } from '../../linux/system/capabilities.ts';
import { kernelIsSince } from '../../linux/system/machine.ts';
import { native } from '../../linux/system/native.ts';

/** Whether the guest can do something, and the reason when it cannot. */
export type Ability = { readonly available: true } | { readonly available: false; readonly reason: string };

/** What this guest can do, and why not. A platform asks for it before it trusts an image. */
export interface Abilities {
  /** The daemon starts processes of any user, sets owners of files and the clock, and mounts volumes. */
  readonly root: Ability;
  /** `/init` sets the clock. */
  readonly clock: Ability;
  /** `/freeze` freezes the workload. */
  readonly freeze: Ability;
  /** `/fsfreeze` may freeze a file system. Whether that of its path can be frozen is known when it is. */
  readonly fsfreeze: Ability;
  /** The daemon tells the peak memory of each process, and whether it was killed for lack of memory. */
  readonly memoryAccounting: Ability;
  /** The number of processes and threads can be limited. */
  readonly taskLimit: Ability;
  /** `/collapse` makes huge pages. */
  readonly collapse: Ability;
  /** The root file system keeps the metadata of uploads. */
  readonly attributes: Ability;
  /** Listeners at localhost are reachable at the guest's address. */
  readonly forwarding: Ability;
  /** After a crash, the next daemon knows what is frozen. */
  readonly records: Ability;
  /** After a crash, the next daemon has the processes of this one. */
  readonly recovery: Ability;
  /** Those of extensions, by name. */
  readonly [extension: string]: Ability;
}

export interface CgroupAbilities {
  /** Why the workload cannot be frozen; null when it can. */
  readonly obstacle: string | null;
  readonly accountsMemory: boolean;
  readonly limitsTasks: boolean;
}

const HUGE_PAGES = '/sys/kernel/mm/transparent_hugepage/enabled';
const PAGE_MAP = '/proc/self/pagemap';
/** The first Linux that has MADV_COLLAPSE. */
const COLLAPSE_SINCE = [6, 1] as const;

export interface AbilitySources {
  readonly cgroups: CgroupAbilities;
  /** Resolves with the reason why localhost listeners are not forwarded; null when they are. */
  forwardingObstacle(): Promise<string | null>;
  /** The directory of the records of what is frozen. */
  readonly runtimeDirectory: string;
  /** Whether a service manager keeps descriptors over a crash. */
  readonly isManaged: boolean;
  /** By the name of each extension, why it is missing, or null. */
  extensionObstacles(): Readonly<Record<string, string | null>>;
}

/** What root cannot do without a capability. */
const USES: Readonly<Record<Capability, string>> = {
  CAP_CHOWN: 'act as other users',
  CAP_DAC_OVERRIDE: 'reach the files of all users',
  CAP_FOWNER: 'change the files of all users',
  CAP_KILL: 'signal processes of other users',
  CAP_SETGID: 'act as other users',
  CAP_SETUID: 'act as other users',
  CAP_SYS_ADMIN: 'mount and freeze file systems',
  CAP_SYS_TIME: 'set the clock',
};

/** Returns what a daemon that is not root, or lacks capabilities, cannot do; null when it can do everything. */
export function rootObstacle(): string | null {
  const uid = process.geteuid?.();
  const lacks = missingCapabilities();
  if (uid === 0) {
    const uses = [...new Set(lacks.map((name) => USES[name]))];
    return lacks.length === 0 ? null : `the daemon has no ${lacks.join(', ')}: it cannot ${uses.join(', ')}`;
  }
  const missing = 'act as other users, mount, set the clock, or write the hosts entry and CA certificates';
  return `the daemon is not root: it serves only its own user (uid ${uid}), and cannot ${missing}`;
}

/** Tells what this guest can do. Without `isWritable` no file is written, because the file system is frozen. */
export async function abilities(sources: AbilitySources, isWritable: boolean): Promise<Abilities> {
  const { obstacle, accountsMemory, limitsTasks } = sources.cgroups;
  const withoutController = (controller: string) =>
    obstacle ??
    `cgroup v2 has no controller ${controller} here: cgroup v1 may have it, or the kernel lacks it`;
  return {
    root: unless(rootObstacle()),
    clock: unless(without('CAP_SYS_TIME')),
    freeze: unless(obstacle),
    fsfreeze: unless(without('CAP_SYS_ADMIN')),
    memoryAccounting: unless(accountsMemory ? null : withoutController('memory')),
    taskLimit: unless(limitsTasks ? null : withoutController('pids')),
    collapse: unless(collapseObstacle()),
    attributes: unless(
      isWritable ? await attributeObstacle('/') : 'not known while the file system is frozen',
    ),
    forwarding: unless(await sources.forwardingObstacle()),
    records: unless(recordsObstacle(sources.runtimeDirectory)),
    recovery: unless(sources.isManaged ? null : UNMANAGED),
    ...Object.fromEntries(
      Object.entries(sources.extensionObstacles()).map(([name, obstacle]) => [name, unless(obstacle)]),
    ),
  };
}

function unless(reason: string | null): Ability {
  return reason === null ? { available: true } : { available: false, reason };
}

const UNMANAGED =
  'no service manager keeps descriptors for the next daemon (NOTIFY_SOCKET, as of systemd): a crash loses the processes';

/** Returns why the daemon cannot do something without a capability, or null. */
function without(capability: Capability): string | null {
  return missingCapabilities().includes(capability)
    ? `the daemon has no ${capability}, or is in a user namespace: it cannot ${USES[capability]}`
    : null;
}

/** Returns why nothing can be recorded in a directory, which need not exist yet; null when that is possible. */
function recordsObstacle(directory: string): string | null {
  let nearest = directory;
  while (nearest !== '/' && !existsSync(nearest)) nearest = dirname(nearest);
  try {
    accessSync(nearest, constants.W_OK | constants.X_OK);
    return null;
  } catch (error) {
    return `cannot write to '${nearest}', where --runtime-directory '${directory}' is: ${messageOf(error)}`;
  }
}

function collapseObstacle(): string | null {
  if (!kernelIsSince(...COLLAPSE_SINCE)) return `Linux ${release()} has no MADV_COLLAPSE: use 6.1 or later`;
  if (!existsSync(HUGE_PAGES))
    return `a container hides ${HUGE_PAGES}, or the kernel has no CONFIG_TRANSPARENT_HUGEPAGE: use one that has`;
  if (!existsSync(PAGE_MAP)) return `the kernel has no ${PAGE_MAP}: use one with CONFIG_PROC_PAGE_MONITOR`;
  return readFileSync(HUGE_PAGES, 'utf8').includes('[never]')
    ? `transparent huge pages are off: write madvise to ${HUGE_PAGES}`
    : null;
}

/** Tries to set an attribute of an unnamed file; returns why that fails, or null. */
async function attributeObstacle(directory: string): Promise<string | null> {
  try {
    await using file = await open(directory, O_TMPFILE | constants.O_WRONLY, 0o600);
    await native.writeAttribute(file.fd, 'user.svc.probe', Buffer.from('1'));
    return null;
  } catch (error) {
    if (!isSystemError(error)) throw error;
    return `the file system of '${directory}' refuses user attributes: ${error.code}`;
  }
}
