import { execFile } from 'node:child_process';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Block, Outcome } from '../code/documents.ts';
import { scratch } from '../machine/scratch.ts';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const GUEST = fileURLToPath(new URL('../in-guest/talk-guest.ts', import.meta.url));
const SCRIPT = `ip link set lo up && mount -t tmpfs tmpfs /home && mkdir /home/user && chown 1000:1000 /home/user &&
mount --bind passwd /etc/passwd && mount --bind group /etc/group && exec "$@"`;

/**
 * Runs blocks one after the other, against a daemon at its usual port, in namespaces in which there is the user `user` and nobody
 * else's process. A block that starts a gateway does so for those behind it. The first block of shell is the beginning of all others.
 */
export async function runBlocks(blocks: readonly Block[]): Promise<Outcome[]> {
  const directory = scratch();
  for (const name of ['node_modules', 'proto']) symlinkSync(join(ROOT, name), join(directory, name));
  const users = ['root:x:0:0::/root:/bin/bash', 'user:x:1000:1000::/home/user:/bin/bash', ''];
  writeFileSync(join(directory, 'passwd'), users.join('\n'));
  writeFileSync(join(directory, 'group'), 'root:x:0:\nuser:x:1000:\n');
  mkdirSync(join(directory, 'hooks'));
  const namespaces = ['--net', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc'];
  const args = [...namespaces, 'sh', '-c', SCRIPT, 'sh', process.execPath, GUEST];
  const child = promisify(execFile)('unshare', args, { cwd: directory, timeout: 290_000 });
  child.child.stdin?.end(JSON.stringify(blocks));
  return JSON.parse((await child).stdout) as Outcome[];
}
