import { constants, existsSync, readFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { release } from 'node:os';
import { isSystemError } from '../../../base/errors.ts';
import { O_TMPFILE } from '../../linux/paths/open-flags.ts';
import { kernelIsSince } from '../../linux/system/machine.ts';
import { native } from '../../linux/system/native.ts';

/** Whether the guest can do something, and the reason when it cannot. */
export type Ability = { readonly available: true } | { readonly available: false; readonly reason: string };

/** What this guest can do, and why not. A platform asks for it before it trusts an image. */
export interface Abilities {
  /** The daemon starts processes of any user, sets owners of files and the clock, and mounts volumes. */
  readonly root: Ability;
  /** `/freeze` freezes the workload. */
  readonly freeze: Ability;
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
  /** By the name of each extension, why it is missing, or null. */
  extensionObstacles(): Readonly<Record<string, string | null>>;
}

/** Returns what a daemon that is not root cannot do; null when it is root. */
export function rootObstacle(): string | null {
  const uid = process.geteuid?.();
  if (uid === 0) return null;
  const missing = 'act as other users, mount, set the clock, or write the hosts entry and CA certificates';
  return `the daemon is not root: it serves only its own user (uid ${uid}), and cannot ${missing}`;
}

/** Tells what this guest can do. Without `isWritable` no file is written, because the file system is frozen. */
export async function abilities(sources: AbilitySources, isWritable: boolean): Promise<Abilities> {
  const { obstacle, accountsMemory, limitsTasks } = sources.cgroups;
  const without = (controller: string) =>
    obstacle ??
    `cgroup v2 has no controller ${controller} here: cgroup v1 may have it, or the kernel lacks it`;
  return {
    root: unless(rootObstacle()),
    freeze: unless(obstacle),
    memoryAccounting: unless(accountsMemory ? null : without('memory')),
    taskLimit: unless(limitsTasks ? null : without('pids')),
    collapse: unless(collapseObstacle()),
    attributes: unless(
      isWritable ? await attributeObstacle('/') : 'not known while the file system is frozen',
    ),
    forwarding: unless(await sources.forwardingObstacle()),
    ...Object.fromEntries(
      Object.entries(sources.extensionObstacles()).map(([name, obstacle]) => [name, unless(obstacle)]),
    ),
  };
}

function unless(reason: string | null): Ability {
  return reason === null ? { available: true } : { available: false, reason };
}

function collapseObstacle(): string | null {
  if (!kernelIsSince(...COLLAPSE_SINCE)) return `Linux ${release()} has no MADV_COLLAPSE: use 6.1 or later`;
  if (!existsSync(HUGE_PAGES))
    return 'the kernel has no transparent huge pages: use one with CONFIG_TRANSPARENT_HUGEPAGE';
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
