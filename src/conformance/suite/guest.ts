import type { TestedDaemon } from './daemon.ts';
import type { GuestFacts, GuestUser } from './run.ts';

const NOBODY = 65_534;

/** Asks the daemon who is there. Throws when it does not answer as the contract says. */
export async function lookAround(daemon: TestedDaemon): Promise<GuestFacts> {
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

function userOf(line: string): GuestUser[] {
  const [name = '', , uid, gid, , home = '/'] = line.split(':');
  return name === '' ? [] : [{ name, uid: Number(uid), gid: Number(gid), home }];
}
