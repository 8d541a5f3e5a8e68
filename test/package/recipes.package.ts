import { spawnSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, inject, onTestFinished, test } from 'vitest';
import { commandsOf } from '../support/code/documents.ts';
import { testCgroup } from '../support/machine/cgroups.ts';
import { needs } from '../support/machine/needs.ts';
import { scratch } from '../support/machine/scratch.ts';
import { artefact } from '../support/package/made.ts';
import { System } from '../support/package/system.ts';
import { freePort } from '../support/servers/free-port.ts';

/* The recipes of docs/recipes.md that need systems and tools of others. test/daemon/project/examples.test.ts has the rest. */

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const NSPAWN = commandsOf('docs/recipes.md', 'sh examples/nspawn/run.sh "$DIST" "$ROOT"');
const CRUN = commandsOf('docs/recipes.md', 'sh examples/crun/run.sh "$IMAGE" "$ROOT"');
const QEMU = commandsOf('docs/recipes.md', 'sh examples/qemu/make.sh "$DIST" "$GUEST"');

const PAUSED =
  /init: done\n[\s\S]*freeze: \{.*"notFrozen":0.*\}\ncollapse: \{"regions".*\}\n[\s\S]*init: done\nbefore the pause\n$/m;

function unpacked(): string {
  const place = scratch();
  const archive = artefact(inject('artefacts'), /^envd-[\d.]+-linux-.*\.tar\.zst$/);
  spawnSync('tar', ['-C', place, '--zstd', '-xf', archive]);
  return join(place, 'envd');
}

/** Runs a block of commands in a cgroup of its own, where cgroup v2 alone is mounted, because crun knows no mixture of both versions. */
async function run(commands: string, env: Readonly<Record<string, string>>): Promise<string> {
  using cgroup = testCgroup();
  const script = `echo $$ >'${cgroup.path}/cgroup.procs'; mount -t cgroup2 cgroup2 /sys/fs/cgroup; ${commands}`;
  // Machines that are guests themselves may have a KVM in which no guest boots.
  const own = { ACCEL: 'tcg', ENVD_PORT: String(await freePort()), LOG: join(scratch(), 'log') };
  const { status, stdout, stderr } = spawnSync('unshare', ['--mount', 'sh', '-ec', script], {
    cwd: ROOT,
    env: { ...process.env, ...own, ...env },
    encoding: 'utf8',
    timeout: 500_000,
  });
  expect({ status, stdout, stderr }).toMatchObject({ status: 0 });
  return stdout;
}

test('systemd-nspawn boots a Debian with the daemon, and it is paused', async () => {
  needs('root', 'mounts', 'mmdebstrap', 'systemd-nspawn');
  const system = System.create('bookworm');
  onTestFinished(() => system[Symbol.asyncDispose]());
  expect(await run(NSPAWN, { DIST: unpacked(), ROOT: system.root })).toMatch(PAUSED);
});

test('crun runs an init container that copies the daemon, and a strict container that serves', async () => {
  needs('root', 'mounts', 'mmdebstrap', 'crun', 'skopeo');
  const system = System.create('trixie', [], ['libc6']);
  onTestFinished(() => system[Symbol.asyncDispose]());
  mkdirSync(join(system.root, 'tools'));
  const printed = await run(CRUN, { IMAGE: artefact(inject('artefacts'), /\.oci\.tar$/), ROOT: system.root });
  expect(printed).toMatch(
    /^\/tools\/envd\/bin\/envd\ninit: done\n[\s\S]*"code":412[\s\S]*before the pause\n$/m,
  );
});

test('qemu boots a Debian with the daemon, is paused into a snapshot, and another qemu resumes it', async () => {
  needs('root', 'mounts', 'mmdebstrap', 'mkfs.ext4', 'qemu-system-x86_64', 'qemu-img');
  expect(await run(QEMU, { DIST: unpacked(), GUEST: join(scratch(), 'guest') })).toMatch(PAUSED);
});
