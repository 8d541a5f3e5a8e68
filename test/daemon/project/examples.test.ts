import { spawnSync } from 'node:child_process';
import { copyFileSync, globSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { commandsOf } from '../../support/code/documents.ts';
import { cgroupMount } from '../../support/machine/cgroups.ts';
import { needs } from '../../support/machine/needs.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { useImage } from '../../support/programs/image.ts';
import { freePort } from '../../support/servers/free-port.ts';

/* The recipes of docs/recipes.md that need nothing but this machine; test/package/ has the others. */

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const read = (file: string) => readFileSync(join(ROOT, file), 'utf8');
const image = useImage();

const CHROOT = commandsOf('docs/recipes.md', 'sh examples/chroot/run.sh "$DIST" "$ROOT"');
const TOOLS = commandsOf('docs/recipes.md', 'sh examples/tools-drive/make.sh "$DIST" "$IMAGE"');

/** A directory with busybox and nothing else. */
function busyboxSystem(): string {
  needs('mounts', '/bin/busybox', 'curl');
  cgroupMount();
  const root = scratch();
  for (const name of ['bin', 'dev', 'mnt/tools', 'proc', 'run', 'sys', 'tmp'])
    mkdirSync(join(root, name), { recursive: true });
  copyFileSync('/bin/busybox', join(root, 'bin/busybox'));
  for (const name of ['cat', 'readlink', 'sh', 'sleep']) symlinkSync('busybox', join(root, 'bin', name));
  return root;
}

/** Runs a block of commands with the daemon at a free port, and returns what it printed. */
async function run(commands: string, env: Readonly<Record<string, string>>): Promise<string> {
  const port = String(await freePort());
  const settings = {
    ENVD_PORT: port,
    ENVD_METADATA_SERVICE: 'off',
    ENVD_LOG_LEVEL: 'silent',
    ENVD_FORWARD_ADDRESS: 'off',
  };
  const { status, stdout, stderr } = spawnSync('sh', ['-ec', commands], {
    cwd: ROOT,
    env: { ...process.env, ...settings, ...env },
    encoding: 'utf8',
    timeout: 120_000,
  });
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  return stdout;
}

const PAUSED =
  /^init: done\n[\s\S]*freeze: \{.*"notFrozen":0.*\}\ncollapse: \{"regions".*\}\ninit: done\nbefore the pause\n$/m;

test('a system in a chroot is paused', async () => {
  const printed = await run(CHROOT, { DIST: image(), ROOT: busyboxSystem() });
  expect(printed).toMatch(PAUSED);
});

test('a system that has the daemon on a read-only disk is paused', async () => {
  needs('loop devices');
  const printed = await run(TOOLS, {
    DIST: image(),
    ROOT: busyboxSystem(),
    IMAGE: join(scratch(), 'tools.ext4'),
  });
  expect(printed).toMatch(PAUSED);
});

describe('the files that are not run here', () => {
  const { version } = JSON.parse(read('package.json'));

  test('are JSON, YAML and shell', () => {
    for (const file of globSync('examples/**/*.json', { cwd: ROOT }))
      expect(JSON.parse(read(file))).toBeTypeOf('object');
    for (const file of globSync('examples/**/*.sh', { cwd: ROOT }))
      expect(spawnSync('sh', ['-n', join(ROOT, file)], { encoding: 'utf8' })).toMatchObject({
        status: 0,
        stderr: '',
      });
  });

  test('a Pod and an object of agent-sandbox run the daemon that the init container of this version copies', () => {
    const pod = parse(read('examples/kubernetes/pod.yaml')).spec;
    const sandbox = parse(read('examples/kubernetes/sandbox.yaml')).spec.podTemplate.spec;
    for (const { initContainers, containers, volumes } of [pod, sandbox]) {
      const [[init], [main]] = [initContainers, containers];
      expect(init.image).toMatch(new RegExp(`:${version}$`));
      const [directory] = init.args;
      expect(main.command[0]).toBe(`${directory}/envd/bin/envd-supervise`);
      for (const { volumeMounts } of [init, main])
        expect(volumeMounts).toContainEqual(expect.objectContaining({ name: 'tools', mountPath: directory }));
      const names = volumes.map(({ name }: { name: string }) => name);
      expect(main.volumeMounts.every(({ name }: { name: string }) => names.includes(name))).toBe(true);
    }
  });
});
