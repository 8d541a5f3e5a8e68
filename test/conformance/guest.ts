import { randomBytes } from 'node:crypto';
import type { Daemon } from './daemon.ts';
import type { Option, Settings } from './options.ts';

export interface User {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
  readonly home: string;
}

/** What is the same for all cases of a run. */
export interface Run {
  readonly url: URL;
  readonly token: string | null;
  /** Begins the tag of each process. */
  readonly tag: string;
  /** The directory of the guest that is removed at the end. */
  readonly directory: string;
  /** Most at a time, where many calls come at once. */
  readonly connections: number;
  readonly options: ReadonlySet<Option>;
}

export function runOf({ url, token, directory, connections, options }: Settings): Run {
  const tag = `conformance-${randomBytes(4).toString('hex')}`;
  return { url, token, tag, directory: `${directory}/${tag}`, connections, options };
}

/** The guest, as its files and programs tell it. */
export interface Guest {
  /** The default user. */
  readonly user: User;
  /** Another one than root and the default user; null when there is none. */
  readonly other: User | null;
  /** Whether a daemon of root's finds cgroup v2 that it can write. */
  readonly cgroups: boolean;
}

const NOBODY = 65_534;

/** Asks the daemon who is there. Throws when it does not answer as the contract says. */
export async function lookAround(daemon: Daemon): Promise<Guest> {
  const users = String(await daemon.download('/etc/passwd'))
    .split('\n')
    .flatMap(userOf);
  const uid = Number(await daemon.shell('id -u'));
  const user = users.find((each) => each.uid === uid);
  if (!user) throw new Error(`the default user ${uid} is not in /etc/passwd`);
  const others = users.filter((each) => each.uid !== 0 && each.uid !== uid);
  const real = others.filter((each) => each.uid >= 1000 && each.uid !== NOBODY);
  const other = real[0] ?? others.find(({ name }) => name === 'nobody') ?? null;
  const mounts = await daemon.shell('cat /proc/self/mounts');
  return { user, other, cgroups: uid === 0 && /^\S+ \S+ cgroup2 rw\b/m.test(mounts) };
}

function userOf(line: string): User[] {
  const [name = '', , uid, gid, , home = '/'] = line.split(':');
  return name === '' ? [] : [{ name, uid: Number(uid), gid: Number(gid), home }];
}
