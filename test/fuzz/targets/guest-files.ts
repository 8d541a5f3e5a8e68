import assert from 'node:assert/strict';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { Cgroup } from '../../../src/daemon/linux/cgroups/cgroup2.ts';
import { isAtOrBelow, mountOf, mountsBelow, readMounts } from '../../../src/daemon/linux/paths/mounts.ts';
import { UserDatabase } from '../../../src/daemon/linux/system/users.ts';
import { unlessRefused } from '../refused.ts';

const DIRECTORY = `/dev/shm/envd-fuzz-js-${process.pid}`;
mkdirSync(DIRECTORY, { recursive: true });
process.once('exit', () => rmSync(DIRECTORY, { recursive: true, force: true }));

/** Files of the guest. First byte: mountinfo, passwd and group (with NUL between them), or those of a cgroup. */
export function fuzz(data: Buffer): void {
  const rest = data.subarray(1);
  const kinds = [fuzzMounts, fuzzUsers, fuzzCgroup];
  kinds[(data[0] ?? 0) % kinds.length]?.(rest);
}

function file(name: string, content: Buffer): string {
  const path = `${DIRECTORY}/${name}`;
  writeFileSync(path, content);
  return path;
}

function fuzzMounts(data: Buffer): void {
  const mounts = readMounts(file('mountinfo', data));
  assert(mounts.length <= data.toString('latin1').split('\n').length);
  const path = '/a/b';
  const at = mountOf(mounts, path);
  assert(!at || isAtOrBelow(at.path, path));
  for (const { path: below } of mountsBelow(mounts, path)) assert(below.startsWith(`${path}/`));
}

function fuzzUsers(data: Buffer): void {
  const end = data.indexOf(0);
  const [passwd, group] = end < 0 ? [data, Buffer.alloc(0)] : [data.subarray(0, end), data.subarray(end + 1)];
  const users = new UserDatabase(file('passwd', passwd), file('group', group));
  const isId = (id: number) => Number.isInteger(id) && id >= 0 && id < 0xffff_ffff;
  for (const name of ['u', '', '__proto__', passwd.toString('utf8').split(':', 1)[0] ?? '']) {
    const user = unlessRefused(() => users.lookup(name));
    if (!user) continue;
    // A number is the user with this uid, whatever its name is.
    assert((user.name === name || /^\d+(:\d+)?$/.test(name)) && name !== '');
    assert(user.name !== '' && user.home !== '' && user.shell !== '');
    assert(isId(user.uid) && user.groups[0] === user.gid && user.groups.every(isId));
    assert.equal(new Set(user.groups).size, user.groups.length);
  }
  const names = users.names();
  for (const id of [0, 1000]) assert(names.userName(id) !== '' && names.groupName(id) !== '');
}

const FIGURES = ['cgroup.events', 'cgroup.procs', 'memory.peak', 'memory.events', 'cpu.stat'];

function fuzzCgroup(data: Buffer): void {
  for (const name of FIGURES) file(name, data);
  const cgroup = new Cgroup(DIRECTORY);
  const time = cgroup.cpuTime();
  for (const figure of [cgroup.memoryPeak(), cgroup.outOfMemoryKills(), time?.userMicros, time?.systemMicros])
    assert(figure === null || figure === undefined || figure >= 0);
  assert.equal(typeof cgroup.populated(), 'boolean');
  assert.equal(typeof cgroup.isFrozen(), 'boolean');
  assert(Array.isArray(cgroup.processes()));
}
