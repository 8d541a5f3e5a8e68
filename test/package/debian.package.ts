import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { describe, expect, inject, onTestFinished, test } from 'vitest';
import { needs } from '../support/machine/needs.ts';
import { artefact } from '../support/package/made.ts';
import { Remote } from '../support/package/remote.ts';
import { SUITES, type Suite, System } from '../support/package/system.ts';
import { freePort } from '../support/servers/free-port.ts';

/* The packages of Debian in fresh roots that systemd boots: install, run, upgrade, remove, purge. */

/** A package with the same files, and another revision. */
function nextRevision(deb: string): string {
  const work = mkdtempSync(join(tmpdir(), 'envd-next-'));
  onTestFinished(() => rmSync(work, { recursive: true, force: true }));
  execFileSync('dpkg-deb', ['--raw-extract', deb, join(work, 'root')]);
  const control = join(work, 'root/DEBIAN/control');
  writeFileSync(control, readFileSync(control, 'utf8').replace(/^(Version: .*-)1$/m, '$12'));
  const next = join(work, basename(deb).replace('-1_', '-2_'));
  execFileSync('dpkg-deb', ['--root-owner-group', '-Znone', '--build', join(work, 'root'), next]);
  return next;
}

async function booted(suite: Suite): Promise<System> {
  needs('root', 'mounts', 'mmdebstrap', 'systemd-nspawn');
  const system = System.create(suite);
  onTestFinished(() => system[Symbol.asyncDispose]());
  await system.boot();
  return system;
}

/** What a package has left: paths with the name of a program, but for what the tests brought. */
const left = (system: System, name: string) =>
  system.run(
    `find / -xdev -name '*${name}*' ! -path '/root/*' ! -path '/proc/*' ! -path '/sys/*' ! -path '/run/*'`,
  );

describe.each(SUITES)('on Debian %s', (suite) => {
  test('the daemon is installed, runs, is upgraded beside its processes, removed and purged', async () => {
    const deb = artefact(inject('artefacts'), /^envd_.*\.deb$/);
    const system = await booted(suite);
    system.run(`dpkg -i ${system.put(deb)}`);
    expect(system.run('systemctl is-enabled envd')).toBe('enabled\n');
    expect(system.tried('systemctl is-active envd').stdout).toBe('inactive\n');
    expect(system.run('stat -c %a /etc/envd/envd.env')).toBe('600\n');

    const port = await freePort();
    const own = `ENVD_HOST=127.0.0.1\nENVD_PORT=${port}\nENVD_METADATA_SERVICE=off\n`;
    system.run(`printf '${own.replaceAll('\n', '\\n')}' >>/etc/envd/envd.env && systemctl start envd`);
    const daemon = new Remote(port);
    expect(await daemon.status('/envs')).toBe(401);
    await daemon.init();
    await daemon.start('sleeper', '/bin/sleep', ['1000']);
    const started = await daemon.startedAt();

    const main = system.run('systemctl show -P MainPID envd');
    system.run(`dpkg -i ${system.put(nextRevision(deb))}`);
    await daemon.untilReplaced(started);
    expect(system.run('systemctl show -P MainPID envd')).toBe(main);
    expect(await daemon.tags()).toEqual(['sleeper']);
    expect(system.run('cat /etc/envd/envd.env')).toContain(own);
    expect(system.run('dpkg -s envd')).toMatch(/^Version: .*-2$/m);

    system.run('dpkg -r envd');
    expect(system.tried('systemctl is-active envd').stdout).not.toBe('active\n');
    expect(system.tried('pgrep -x sleep').status).toBe(1);
    expect(system.run('cat /etc/envd/envd.env')).toContain(own);
    expect(system.run('ls /usr/lib').split('\n')).not.toContain('envd');
    system.run('dpkg -P envd');
    expect(left(system, 'envd')).toBe('');
  });

  test('the gateway is installed, runs with a key, is restarted by an upgrade, removed and purged', async () => {
    const deb = artefact(inject('artefacts'), /^envd-gateway_.*\.deb$/);
    const system = await booted(suite);
    system.run(`dpkg -i ${system.put(deb)}`);
    expect(system.tried('systemctl is-enabled envd-gateway').stdout).toBe('disabled\n');
    const port = await freePort();
    const own = `ENVD_GATEWAY_API_KEY=key\nENVD_GATEWAY_HOST=127.0.0.1\nENVD_GATEWAY_PORT=${port}\nENVD_GATEWAY_DRAIN=0\n`;
    system.run(
      `printf '${own.replaceAll('\n', '\\n')}' >>/etc/envd-gateway.env && systemctl enable --now envd-gateway`,
    );
    const gateway = new Remote(port);
    await gateway.untilStatus('/gateway/health', 204);
    const main = system.run('systemctl show -P MainPID envd-gateway');
    system.run(`dpkg -i ${system.put(nextRevision(deb))}`);
    await expect.poll(() => system.run('systemctl show -P MainPID envd-gateway')).not.toBe(main);
    await gateway.untilStatus('/gateway/health', 204);
    expect(system.run('cat /etc/envd-gateway.env')).toContain(own);
    system.run('dpkg -r envd-gateway');
    expect(system.run('cat /etc/envd-gateway.env')).toContain(own);
    system.run('dpkg -P envd-gateway');
    expect(left(system, 'envd-gateway')).toBe('');
  });
});
