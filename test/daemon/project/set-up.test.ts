import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { packages as listed, programsFor } from '../../support/machine/machine.ts';
import { needs } from '../../support/machine/needs.ts';
import { scratch } from '../../support/machine/scratch.ts';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const LINK = 'node_modules/.bin/node';
/** The link under whose name the daemon runs. */
const OWN_LINK = 'node_modules/.bin/envd';
/** A test builds the addon twice; the machine may be busy. */
const PATIENCE = { timeout: 600_000 };

/** A clone whose dependencies are links to those of this one, without a built addon. */
function clone(): string {
  needs(...programsFor('start'));
  const directory = scratch();
  for (const name of ['.ci', '.npmrc', 'package-lock.json', 'native']) {
    cpSync(join(ROOT, name), join(directory, name), {
      recursive: true,
      filter: (source) => !source.startsWith(join(ROOT, 'native/build')),
    });
  }
  const modules = join(ROOT, 'node_modules');
  mkdirSync(join(directory, 'node_modules'));
  for (const name of readdirSync(modules)) {
    if (name === '.bin' || name === '.envd-setup.dependencies') {
      cpSync(join(modules, name), join(directory, 'node_modules', name), {
        recursive: true,
        verbatimSymlinks: true,
      });
    } else if (!name.startsWith('.')) {
      symlinkSync(join(modules, name), join(directory, 'node_modules', name));
    }
  }
  return directory;
}

function startSetUp(directory: string): ChildProcess & { said: Promise<string> } {
  const child = spawn('sh', ['.ci/setup'], {
    cwd: directory,
    env: { PATH: process.env.PATH, HOME: directory, ENVD_NO_APT: '1' },
    stdio: ['ignore', 'ignore', 'pipe'],
    detached: true,
  });
  return Object.assign(child, { said: text(child.stderr) });
}

const ended = (child: ChildProcess) => new Promise((resolve) => child.once('close', resolve));

function loadsAddon(directory: string): boolean {
  const script = 'require("./native/build/Release/envd.node")';
  return spawnSync(LINK, ['-e', script], { cwd: directory }).status === 0;
}

test(
  'a set-up that was killed during the build is repeated, by one of two concurrent runs',
  PATIENCE,
  async () => {
    const directory = clone();
    rmSync(join(directory, LINK));
    const killed = startSetUp(directory);
    const end = ended(killed);
    await expect
      .poll(() => existsSync(join(directory, 'native/build/Release')), { timeout: PATIENCE.timeout })
      .toBe(true);
    process.kill(-(killed.pid ?? 0), 'SIGKILL');
    await end;
    expect(loadsAddon(directory)).toBe(false);
    const both = [startSetUp(directory), startSetUp(directory)];
    expect(await Promise.all(both.map(ended))).toEqual([0, 0]);
    const said = await Promise.all(both.map((setUp) => setUp.said));
    expect(said.toSorted()).toEqual([
      'setup: building native\n',
      'setup: waiting for another set-up of this clone\n',
    ]);
    expect(loadsAddon(directory)).toBe(true);
  },
);

test('a removed link is restored, and a changed source is built again', PATIENCE, async () => {
  const directory = clone();
  const source = join(directory, 'native/src/support/napi.c');
  const before = readFileSync(source);
  expect(await ended(startSetUp(directory))).toBe(0);
  // As an old npm leaves it.
  rmSync(join(directory, LINK));
  const linking = startSetUp(directory);
  expect([await ended(linking), await linking.said]).toEqual([0, '']);
  rmSync(join(directory, OWN_LINK));
  expect(await ended(startSetUp(directory))).toBe(0);
  for (const link of [LINK, OWN_LINK]) {
    const version = spawnSync(link, ['--version'], { cwd: directory, encoding: 'utf8' }).stdout.trim();
    expect(version).toBe(process.version);
  }
  writeFileSync(source, `${before}\n#error not C\n`);
  expect(await ended(startSetUp(directory))).not.toBe(0);
  writeFileSync(source, before);
  const again = startSetUp(directory);
  expect([await ended(again), await again.said]).toEqual([0, 'setup: building native\n']);
  expect(loadsAddon(directory)).toBe(true);
});

/** Runs .ci/packages with a PATH that has only what a shell script needs. */
function packages(purposes: readonly string[], options: { uid?: number; env?: Record<string, string> }) {
  const bin = scratch();
  for (const name of ['dirname', 'grep', 'id', 'sed', 'sort', 'tr']) {
    symlinkSync(`/usr/bin/${name}`, join(bin, name));
  }
  const { status, stderr } = spawnSync('/bin/sh', ['.ci/packages', ...purposes], {
    cwd: clone(),
    encoding: 'utf8',
    uid: options.uid,
    env: { PATH: bin, ...options.env },
  });
  return { status, stderr };
}

/** The packages for tests whose programs are in none of the directories that .ci/packages adds to its PATH, in order. */
function missingForTests(): readonly string[] {
  const isThere = (program: string) =>
    program.startsWith('/')
      ? existsSync(program)
      : existsSync(`/usr/sbin/${program}`) || existsSync(`/sbin/${program}`);
  const missing = listed().filter(([purpose, program = '']) => purpose === 'test' && !isThere(program));
  return [...new Set(missing.flatMap(([, , ...names]) => names))].sort();
}

test('missing packages that may not be installed are reported with the command that installs them', () => {
  const env = { ENVD_NO_APT: '1' };
  expect(packages(['start'], { env })).toEqual({
    status: 1,
    stderr:
      'setup: programs are missing, and nothing was installed (ENVD_NO_APT is set); as root on Debian: ' +
      'apt-get update && apt-get install --no-install-recommends build-essential python3\n',
  });
  const tests = packages(['test'], { env });
  expect(tests.status).toBe(2);
  expect(tests.stderr).toBe(
    'setup: programs are missing, and nothing was installed (ENVD_NO_APT is set); as root on Debian: ' +
      `apt-get update && apt-get install --no-install-recommends ${missingForTests().join(' ')}\n`,
  );
});
