import { strict as assert } from 'node:assert';
import { given, section } from '../../suite/cases.ts';
import { RAW, refusedRest, type TestedDaemon } from '../../suite/daemon.ts';
import { NotRun } from '../../suite/not-run.ts';

/** A small file system of its own, where the guest can mount one. */
async function smallDisk(daemon: TestedDaemon): Promise<string> {
  const path = await daemon.makeDir('disk');
  const mounted = await daemon.shell(
    `mount -t tmpfs -o size=64k,nr_inodes=16 conformance '${path}' && echo yes || echo no`,
  );
  if (mounted !== 'yes') throw new NotRun('the guest can mount no tmpfs');
  daemon.atEnd(() => daemon.shell(`umount '${path}'`));
  // As processes may have a mount namespace of their own, which the daemon does not see.
  const mounts = await daemon.download('/proc/1/mounts').catch(() => '');
  if (!String(mounts).includes(path)) throw new NotRun("the guest's processes have mounts of their own");
  return path;
}

const raw = (daemon: TestedDaemon, path: string, body: string) =>
  daemon.rest('POST', '/files', { query: { path }, headers: RAW, body });

export const FULL_DISK = section('5.2', 'Uploads to a full disk', {
  'a full disk is 507, tells the length, and leaves what was there': given('root')(async (daemon) => {
    const path = `${await smallDisk(daemon)}/file`;
    await daemon.upload(path, 'before');
    const length = 200_000;
    const message = `attempted to write ${length} bytes: not enough disk space available`;
    refusedRest(await raw(daemon, path, 'x'.repeat(length)), 507, message);
    refusedRest(await raw(daemon, `${path}2`, 'x'.repeat(length)), 507, message);
    assert.equal(String(await daemon.download(path)), 'before');
    assert.deepEqual(await daemon.names(daemon.at('disk')), ['file']);
  }),
  'a file on a full disk can be replaced by a smaller one': given('root')(async (daemon) => {
    const disk = await smallDisk(daemon);
    await daemon.upload(`${disk}/file`, 'x'.repeat(30_000));
    await daemon.shell(`cat /dev/zero >'${disk}/rest' 2>/dev/null || true`);
    await daemon.upload(`${disk}/file`, 'y'.repeat(20_000));
    assert.equal(String(await daemon.download(`${disk}/file`)), 'y'.repeat(20_000));
  }),
  'no inodes is 507': given('root')(async (daemon) => {
    const disk = await smallDisk(daemon);
    await daemon.shell(`cd '${disk}' && i=0; while mkdir $i 2>/dev/null; do i=$((i + 1)); done`);
    refusedRest(await raw(daemon, `${disk}/file`, 'x'), 507, 'not enough inodes available');
  }),
});
