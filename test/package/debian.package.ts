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

/** All that the packages need beside Debian's minimum: an init, and what the gateway depends on. */
const MINIMUM = ['libatomic1', 'libstdc++6', 'systemd-sysv'];

/** A package with another revision, and with the same files unless `change` changes them below its argument. */
function revised(deb: string, revision: number, change: (root: string) => void = () => {}): string {
  const work = mkdtempSync(join(tmpdir(), 'envd-next-'));
  onTestFinished(() => rmSync(work, { recursive: true, force: true }));
  execFileSync('dpkg-deb', ['--raw-extract', deb, join(work, 'root')]);
  const control = join(work, 'root/DEBIAN/control');
  writeFileSync(control, readFileSync(control, 'utf8').replace(/^(Version: .*-)1$/m, `$1${revision}`));
  change(join(work, 'root'));
  const next = join(work, basename(deb).replace('-1_', `-${revision}_`));
  execFileSync('dpkg-deb', ['--root-owner-group', '-Znone', '--build', join(work, 'root'), next]);
  return next;
}

async function booted(suite: Suite): Promise<System> {
  needs('root', 'mounts', 'mmdebstrap', 'systemd-nspawn');
  const system = System.create(suite, [], MINIMUM);
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
  test('envctl is installed, answers without Node and loads its program, and is purged', () => {
    needs('root', 'mounts', 'mmdebstrap');
    const system = System.create(suite, [], MINIMUM);
    onTestFinished(() => system[Symbol.asyncDispose]());
    system.run(`dpkg -i ${system.put(artefact(inject('artefacts'), /^envctl_.*\.deb$/))}`);
    expect(system.run('envctl --version')).toMatch(/^\d+\.\d+\.\d+\n$/);
    expect(system.run('envctl completion bash')).toBe(
      system.run('cat /usr/share/bash-completion/completions/envctl'),
    );
    expect(system.tried('HOME=/root envctl --url http://127.0.0.1:1 ps')).toMatchObject({
      status: 121,
      stderr: expect.stringContaining('nothing listens there'),
    });
    expect(system.run('find /usr/lib/envctl/share/console -name index.html')).not.toBe('');
    system.run('dpkg -P envctl');
    expect(left(system, 'envctl')).toBe('');
  });

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
    const broken = revised(deb, 2, (root) =>
      writeFileSync(join(root, 'usr/lib/envd/bin/envd'), '#!/bin/sh\nexit 1\n'),
    );
    const { status, stderr } = system.tried(`dpkg -i ${system.put(broken)}`);
    expect(status).not.toBe(0);
    expect(stderr).toMatch(
      /^envd: the new version is installed, but the earlier one still runs.*\nenvd: 'journalctl -u envd' says why/m,
    );
    // The journal may take the line of a program after what that answers.
    await expect.poll(() => system.run('journalctl -u envd')).toContain('cannot upgrade');
    expect(await daemon.startedAt()).toBe(started);

    system.run(`dpkg -i ${system.put(revised(deb, 3))}`);
    await daemon.untilReplaced(started);
    expect(system.run('systemctl show -P MainPID envd')).toBe(main);
    expect(await daemon.tags()).toEqual(['sleeper']);
    const updated = await daemon.startedAt();
    system.run(`kill -KILL ${main}`);
    await daemon.untilReplaced(updated);
    expect(await daemon.tags()).toEqual(['sleeper']);
    expect(system.run('cat /etc/envd/envd.env')).toContain(own);
    expect(system.run('dpkg -s envd')).toMatch(/^Version: .*-3$/m);

    system.run('dpkg -r envd');
    expect(system.tried('systemctl is-active envd').stdout).not.toBe('active\n');
    expect(system.tried('grep -lx sleep /proc/[0-9]*/comm').stdout).toBe('');
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
    system.run(`dpkg -i ${system.put(revised(deb, 2))}`);
    await expect.poll(() => system.run('systemctl show -P MainPID envd-gateway')).not.toBe(main);
    await gateway.untilStatus('/gateway/health', 204);
    expect(system.run('cat /etc/envd-gateway.env')).toContain(own);
    system.run('dpkg -r envd-gateway');
    expect(system.run('cat /etc/envd-gateway.env')).toContain(own);
    system.run('dpkg -P envd-gateway');
    expect(left(system, 'envd-gateway')).toBe('');
  });
});
