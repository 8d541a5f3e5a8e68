import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, inject, onTestFinished, test } from 'vitest';
import { needs } from '../support/machine/needs.ts';
import { artefact } from '../support/package/made.ts';
import { Remote } from '../support/package/remote.ts';
import { System } from '../support/package/system.ts';
import { freePort } from '../support/servers/free-port.ts';

/*
 * The packages of RPM, by rpm in a root with Debian, because none of the distributions with RPM can be had here. That root has no
 * database of what Debian installed, so dependencies are not checked, and it gets the presets of a distribution like Fedora.
 */

async function booted(): Promise<System> {
  needs('root', 'mounts', 'mmdebstrap', 'systemd-nspawn');
  const system = System.create('trixie', ['rpm']);
  onTestFinished(() => system[Symbol.asyncDispose]());
  writeFileSync(join(system.root, 'usr/lib/systemd/system-preset/99-default.preset'), 'disable *\n');
  await system.boot();
  return system;
}

test('the daemon is installed, runs, is upgraded beside its processes, and removed', async () => {
  const system = await booted();
  const rpm = system.put(artefact(inject('artefacts'), /^envd-[\d.]+-1\..*\.rpm$/));
  system.run(`rpm -i --nodeps ${rpm} 2>&1`);
  expect(system.tried('systemctl is-enabled envd').stdout).toBe('disabled\n');
  expect(system.tried('systemctl is-active envd').stdout).toBe('inactive\n');
  const port = await freePort();
  const own = `ENVD_HOST=127.0.0.1\nENVD_PORT=${port}\nENVD_METADATA_SERVICE=off\n`;
  system.run(`printf '${own.replaceAll('\n', '\\n')}' >>/etc/envd/envd.env && systemctl enable --now envd`);
  const daemon = new Remote(port);
  await daemon.untilStatus('/envs', 401);
  await daemon.init();
  await daemon.start('sleeper', '/bin/sleep', ['1000']);

  const started = await daemon.startedAt();
  system.run(`rpm -U --nodeps --replacepkgs ${rpm} 2>&1`);
  await daemon.untilReplaced(started);
  expect(await daemon.tags()).toEqual(['sleeper']);
  expect(system.run('cat /etc/envd/envd.env')).toContain(own);
  // The configuration is what was changed.
  expect(system.tried('rpm -V --nodeps envd').stdout).toMatch(/^\S+ +c \/etc\/envd\/envd\.env\n$/);

  system.run('rpm -e envd 2>&1');
  expect(system.tried('systemctl is-active envd').stdout).not.toBe('active\n');
  expect(system.tried('pgrep -x sleep').status).toBe(1);
  expect(system.run('cat /etc/envd/envd.env.rpmsave')).toContain(own);
  expect(system.run('ls /usr/lib').split('\n')).not.toContain('envd');
});

test('the gateway is installed, runs with a key, is restarted by an upgrade, and removed', async () => {
  const system = await booted();
  const rpm = system.put(artefact(inject('artefacts'), /^envd-gateway-[\d.]+-1\..*\.rpm$/));
  expect(system.run(`rpm -qp --requires ${rpm}`)).toMatch(/^libstdc\+\+\.so\.6/m);
  system.run(`rpm -i --nodeps ${rpm} 2>&1`);
  const port = await freePort();
  const own = `ENVD_GATEWAY_API_KEY=key\nENVD_GATEWAY_HOST=127.0.0.1\nENVD_GATEWAY_PORT=${port}\nENVD_GATEWAY_DRAIN=0\n`;
  system.run(
    `printf '${own.replaceAll('\n', '\\n')}' >>/etc/envd-gateway.env && systemctl enable --now envd-gateway`,
  );
  const gateway = new Remote(port);
  await gateway.untilStatus('/gateway/health', 204);
  const main = system.run('systemctl show -P MainPID envd-gateway');
  system.run(`rpm -U --nodeps --replacepkgs ${rpm} 2>&1`);
  await expect.poll(() => system.run('systemctl show -P MainPID envd-gateway')).not.toBe(main);
  await gateway.untilStatus('/gateway/health', 204);
  system.run('rpm -e envd-gateway 2>&1');
  expect(system.run('cat /etc/envd-gateway.env.rpmsave')).toContain(own);
});
