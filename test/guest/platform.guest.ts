import { hash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Code, ConnectError } from '@connectrpc/connect';
import { describe, expect, onTestFinished, type TestOptions, test } from 'vitest';
import { booted, whenBooted } from '../support/guest/booted.ts';
import { FIRECRACKER } from '../support/guest/processor.ts';
import { type RunningGuest, resumed, resumedIn } from '../support/guest/resumed.ts';

/** Concurrent calls on a volume: more than Node's default number of pool threads, fewer than the image's. */
const CALLERS = 8;

const later = (seconds: number) => new Date(Date.now() + seconds * 1000);

describe('the metadata service', whenBooted, () => {
  const program = readFileSync(new URL('../support/guest/metadata-service.mjs', import.meta.url), 'utf8');

  /** A guest with the service at its address, configured as in docs/operating.md. */
  async function withService(): Promise<RunningGuest> {
    const guest = await resumed(booted);
    const unit = '[Service]\nEnvironment=ENVD_METADATA_SERVICE=http://169.254.169.254/\n';
    await guest.call('POST', '/files?path=/run/metadata.mjs', program);
    await guest.call('POST', '/files?path=/etc/systemd/system/envd.service.d/metadata.conf', unit);
    await guest.shell('ip addr add 169.254.169.254/32 dev lo');
    await tell(guest, {});
    await guest.shell('systemd-run -q /opt/envd/lib/envd /run/metadata.mjs /run/metadata.json');
    const before = await guest.mainPid();
    await guest.system('systemctl daemon-reload && systemctl restart envd').catch(() => null);
    await expect
      .poll(() => guest.mainPid().catch(() => before), { timeout: 300_000, interval: 500 })
      .not.toBe(before);
    return guest;
  }

  const tell = (guest: RunningGuest, metadata: object) =>
    guest.call('POST', '/files?path=/run/metadata.json', JSON.stringify(metadata));

  /** The status of an /init; repeated when the service did not answer within its second. */
  async function init(guest: RunningGuest, accessToken: string, seconds: number): Promise<number> {
    for (;;) {
      const body = { accessToken, timestamp: later(seconds).toISOString() };
      const { status } = await guest.call('POST', '/init', body);
      if (status !== 503) return status;
    }
  }

  test('decides about the token, and provides the identity', async () => {
    await using guest = await withService();
    expect(await init(guest, 'first', 0)).toBe(204);
    guest.token = 'first';
    const told = {
      sandboxID: 'sandbox-7',
      templateID: 'template-3',
      accessTokenHash: hash('sha512', 'second'),
    };
    await tell(guest, told);
    expect(await init(guest, 'third', 1)).toBe(401);
    expect(await init(guest, 'second', 2)).toBe(204);
    guest.token = 'second';
    expect(await guest.shell('echo $SVC_SANDBOX $SVC_SANDBOX_ID $SVC_TEMPLATE_ID')).toBe(
      'true sandbox-7 template-3',
    );
    expect(await guest.shell('cat /run/svc/SVC_SANDBOX_ID')).toBe('sandbox-7');
    expect(await init(guest, '', 3)).toBe(401);
    await tell(guest, { ...told, accessTokenHash: hash('sha512', '') });
    expect(await init(guest, '', 4)).toBe(204);
    guest.token = null;
    expect((await guest.call('GET', '/envs')).status).toBe(200);
  });
});

const whenServed: TestOptions =
  process.env.ENVD_GUEST_KERNEL === FIRECRACKER
    ? { skip: true, meta: { notRun: `the kernel '${FIRECRACKER}' has no NFS server` } }
    : whenBooted;

describe('a volume', whenServed, () => {
  const EXPORT = '/srv/export';
  const MOUNT = '/mnt/volume';
  const SERVER = '10.9.9.9';
  const volume = { nfs_target: `${SERVER}:${EXPORT}`, path: MOUNT };

  /** `directory`: of a guest that can be paused. */
  async function withServer(directory?: string): Promise<RunningGuest> {
    const guest = directory ? await resumedIn(directory, booted) : await resumed(booted);
    await guest.shell(`mkdir -p ${EXPORT} && echo "${EXPORT} *(rw,no_root_squash,fsid=1)" >/etc/exports`);
    // Without the grace period in which a restarted server waits for its former clients.
    await guest.shell('printf "[nfsd]\\ngrace-time=10\\nlease-time=10\\n" >/etc/nfs.conf.d/test.conf');
    await guest.shell(`ip addr add ${SERVER}/32 dev lo && systemctl start nfs-server`);
    return guest;
  }

  const mount = (guest: RunningGuest, lifecycleID: string, seconds: number, volumes: object[] = [volume]) =>
    guest.init({
      accessToken: 'first',
      timestamp: later(seconds),
      lifecycleID,
      volumeMounts: volumes,
    });
  const mountId = (guest: RunningGuest) =>
    guest.shell(`findmnt --noheadings --output ID,FSTYPE,SOURCE ${MOUNT} || true`);

  test('is mounted, kept for the life of the guest, also over a crash of the daemon, and mounted again in the next', async () => {
    await using guest = await withServer();
    await mount(guest, 'first', 1);
    const first = await mountId(guest);
    expect(first).toMatch(/nfs4? +10\.9\.9\.9:\/srv\/export$/);
    expect((await guest.call('POST', `/files?path=${MOUNT}/poem`, 'roses')).status).toBe(200);
    expect(await guest.shell(`cat ${EXPORT}/poem`)).toBe('roses');
    await expect(guest.filesystem.createWatcher({ path: MOUNT })).rejects.toThrow(
      `cannot watch path on network filesystem: '${MOUNT}'`,
    );
    await mount(guest, 'first', 2);
    expect(await mountId(guest)).toBe(first);
    await guest.next('kill -KILL $(systemctl show --property=MainPID --value envd)');
    await mount(guest, 'first', 3);
    expect(await mountId(guest)).toBe(first);
    // A file stays open on the old mount, so that the kernel does not reuse its device number.
    const user = guest.process.start({ process: { cmd: 'sleep', args: ['1000'], cwd: MOUNT } });
    await user[Symbol.asyncIterator]().next();
    await mount(guest, 'second', 4);
    expect(await mountId(guest)).toMatch(/nfs/);
    expect(await mountId(guest)).not.toBe(first);
    expect(await (await guest.call('GET', `/files?path=${MOUNT}/poem`)).text()).toBe('roses');
    await mount(guest, 'second', 5, []);
    expect(await mountId(guest)).toBe('');
  });

  test('is mounted again after a resume, waits for a server that is gone, and works when it is back', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'envd-volume-'));
    onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
    const before = await withServer(join(directory, 'guest'));
    await mount(before, 'first', 1);
    const first = await mountId(before);
    await before.call('POST', `/files?path=${MOUNT}/poem`, 'roses');
    // Keeps the old mount, so that the number of the new one is another.
    const user = before.process.start({ process: { cmd: 'sleep', args: ['1000'], cwd: MOUNT } });
    const stream = user[Symbol.asyncIterator]();
    await stream.next();
    const ended = stream.next().catch(() => null);
    expect((await before.call('POST', '/freeze?maxWaitMs=60000')).status).toBe(200);
    const paused = await before.machine.snapshot();
    await ended;

    await using guest = await resumed(paused);
    await mount(guest, 'second', 3600);
    expect(await mountId(guest)).toMatch(/nfs4? +10\.9\.9\.9:\/srv\/export$/);
    expect(await mountId(guest)).not.toBe(first);
    expect(await (await guest.call('GET', `/files?path=${MOUNT}/poem`)).text()).toBe('roses');

    // The server ends; what needs it is an error in the end, never a hang of anything else.
    await guest.shell('systemctl stop nfs-server');
    const write = () =>
      guest.call('POST', `/files?path=${MOUNT}/violets`, 'blue').then(({ status }) => status);
    const lost = write();
    expect(await guest.shell('echo on')).toBe('on');
    expect([403, 500, 503, 504]).toContain(await lost);
    await guest.shell('systemctl start nfs-server');
    await expect.poll(write).toBe(200);
    expect(await guest.shell(`cat ${EXPORT}/violets`)).toBe('blue');
    await mount(guest, 'second', 3601, []);
    expect(await mountId(guest)).toBe('');
    expect(await guest.shell('systemctl --failed --plain --no-legend')).toBe('');
  });

  test('with an unreachable server blocks only operations on it', async () => {
    await using guest = await withServer();
    await mount(guest, 'first', 1);
    await guest.call('POST', `/files?path=${MOUNT}/poem`, 'roses');
    // The server sends nothing from here on.
    await guest.shell(`ip addr del ${SERVER}/32 dev lo && ip route add blackhole ${SERVER}/32`);
    let answered = 0;
    const callers = Array.from({ length: CALLERS }, async (_, caller) => {
      const told = await guest.filesystem.stat({ path: `${MOUNT}/${caller}` }).catch(ConnectError.from);
      // On a slow machine the rounds below take longer than a file system may.
      if (!(told instanceof ConnectError && told.code === Code.DeadlineExceeded)) answered += 1;
    });
    for (let round = 0; round < 3; round += 1) {
      expect(await guest.shell('echo on')).toBe('on');
      expect((await guest.call('POST', '/files?path=/srv/new', 'new')).status).toBe(200);
      expect(await (await guest.call('GET', '/files?path=/srv/new')).text()).toBe('new');
    }
    // The client may answer from its cache.
    expect(answered).toBeLessThan(CALLERS);
    await guest.machine[Symbol.asyncDispose]();
    await Promise.all(callers);
  });
});
