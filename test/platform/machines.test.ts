import { setTimeout as delay } from 'node:timers/promises';
import { Sandbox } from 'e2b';
import { expect, test } from 'vitest';
import { reasonNotToRun } from '../support/guest/tools.ts';
import { owned } from '../support/programs/owned.ts';
import { startTestPlatform } from '../support/programs/platform.ts';

/** An image is built and booted the first time, without KVM. */
const BOOT_MS = 900_000;

/** The first run builds an image, so it is run when it is asked for. */
const reason =
  process.env.ENVD_PLATFORM_MACHINES === '1' ? reasonNotToRun() : 'ENVD_PLATFORM_MACHINES=1 is not set';

test('virtual machines: forked, paused with their memory, resumed with the right clock, and removed', {
  timeout: 2 * BOOT_MS,
  ...(reason !== null && { skip: true, meta: { notRun: reason } }),
}, async () => {
  const platform = await owned(startTestPlatform(() => {}, { backend: 'qemu' }));
  const options = {
    ...{ apiKey: platform.key, apiUrl: platform.url, sandboxUrl: platform.url },
    ...{ timeoutMs: BOOT_MS, requestTimeoutMs: BOOT_MS },
  };
  const [one, other] = await Promise.all([Sandbox.create(options), Sandbox.create(options)]);
  const shell = async (sandbox: Sandbox, command: string) =>
    (await sandbox.commands.run(command)).stdout.trim();
  expect(await shell(one, 'id -un; hostname')).toBe(`user\n${one.sandboxId}`);
  const random = (sandbox: Sandbox) => shell(sandbox, 'head -c 8 /dev/urandom | od -An -tx1');
  expect(await random(one)).not.toBe(await random(other));
  // Neither another machine, nor the host, nor its network.
  const address = await shell(other, 'hostname -I');
  for (const to of [
    `${address.split(' ').at(-1)}/49983`,
    '10.0.2.2/49980',
    '10.213.0.1/49980',
    '192.0.2.1/80',
  ])
    expect([
      to,
      await shell(one, `timeout 2 bash -c '</dev/tcp/${to}' 2>/dev/null && echo open || echo closed`),
    ]).toEqual([to, 'closed']);
  await one.commands.run('i=0; while :; do i=$((i+1)); echo $i >/tmp/count; sleep 0.1; done', {
    background: true,
  });
  for (const _ of ['first', 'second']) {
    expect(await Sandbox.pause(one.sandboxId, options)).toBe(true);
    // Time itself is tested: the clock of the machine stands still.
    await delay(3000);
    const resumed = await Sandbox.connect(one.sandboxId, options);
    const before = Number(await shell(resumed, 'cat /tmp/count'));
    expect(Math.abs(Number(await shell(resumed, 'date +%s')) - Date.now() / 1000)).toBeLessThan(3);
    await delay(1000);
    expect(Number(await shell(resumed, 'cat /tmp/count'))).toBeGreaterThan(before);
  }
  for (const sandbox of [one, other]) expect(await sandbox.kill()).toBe(true);
  expect(await one.isRunning()).toBe(false);
});
