import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { endWithTests } from '../support/programs/end-with-tests.ts';
import { EnvctlTerminal, envctl, startEnvctl } from '../support/programs/envctl.ts';
import { owned } from '../support/programs/owned.ts';
import { startRelay } from '../support/servers/relay.ts';
import { until } from '../support/until.ts';

let daemon: TestDaemon;
let remote: string;
const run = (...args: string[]) => envctl(daemon.url, args);

beforeAll(async () => {
  daemon = await startDaemon();
  remote = join(daemon.scratch, 'remote');
  mkdirSync(remote);
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

/** Everything below a directory: paths, with content of files, targets of links. */
function treeOf(directory: string): Record<string, string> {
  const entries = readdirSync(directory, { recursive: true, withFileTypes: true });
  return Object.fromEntries(
    entries.map((entry) => {
      const path = join(entry.parentPath, entry.name);
      const what = entry.isFile()
        ? readFileSync(path, 'latin1')
        : entry.isSymbolicLink()
          ? 'link'
          : 'directory';
      return [path.slice(directory.length + 1), what];
    }),
  );
}

function makeTree(): string {
  const directory = join(scratch(), 'tree');
  mkdirSync(join(directory, 'a/b'), { recursive: true });
  mkdirSync(join(directory, 'empty'));
  writeFileSync(join(directory, 'a/one'), 'one');
  writeFileSync(join(directory, 'a/b/zwei ü"\'$x'), 'zwei');
  writeFileSync(join(directory, 'run.sh'), '#!/bin/sh\n');
  writeFileSync(join(directory, 'nothing'), '');
  writeFileSync(join(directory, 'x'.repeat(255)), 'long name');
  chmodSync(join(directory, 'run.sh'), 0o755);
  utimesSync(join(directory, 'a/one'), 1_600_000_000, 1_600_000_000);
  return directory;
}

test('ls, cat, stat, mkdir, mv and rm', async () => {
  const here = join(remote, 'basics');
  expect((await run('mkdir', `${here}/sub`)).code).toBe(0);
  expect(await run('mkdir', here)).toMatchObject({ code: 125 });
  expect((await run('mkdir', '-p', here)).code).toBe(0);
  writeFileSync(join(here, 'poem.txt'), 'roses\n');
  symlinkSync('poem.txt', join(here, 'link'));
  expect((await run('ls', here)).stdout).toBe('link\npoem.txt\nsub\n');
  expect((await run('ls', '-l', here)).stdout).toMatch(
    new RegExp(
      `^Lrwxrwxrwx .* link -> ${here}/poem.txt\n-rw-r--r-- +root +root +6 B +2.* poem.txt\ndrwx.* sub\n$`,
    ),
  );
  writeFileSync(join(here, 'sub/deep'), '');
  expect((await run('ls', '-R', here)).stdout).toBe(
    `${here}:\nlink\npoem.txt\nsub\n\n${here}/sub:\ndeep\n\n`,
  );
  const lines = (await run('ls', '--json', '-R', here)).stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  expect(lines.map(({ path, type }) => [path, type])).toEqual([
    [`${here}/link`, 'link'],
    [`${here}/poem.txt`, 'file'],
    [`${here}/sub`, 'directory'],
    [`${here}/sub/deep`, 'file'],
  ]);
  expect(await run('cat', `${here}/poem.txt`, `:${here}/link`)).toMatchObject({
    stdout: 'roses\nroses\n',
    code: 0,
  });
  expect(await run('cat', `${here}/none`)).toMatchObject({
    code: 123,
    stderr: `envctl: path '${here}/none' does not exist\n`,
  });
  expect(JSON.parse((await run('stat', '--json', `${here}/poem.txt`)).stdout)).toMatchObject({
    size: 6,
    mode: '0644',
  });
  await run('mv', `${here}/poem.txt`, `${here}/new/ode.txt`);
  expect(readFileSync(join(here, 'new/ode.txt'), 'utf8')).toBe('roses\n');
  expect(await run('rm', `${here}/new`)).toMatchObject({ code: 120 });
  expect((await run('rm', '-r', `${here}/new`)).code).toBe(0);
  expect((await run('rm', `${here}/new`)).code).toBe(123);
  expect((await run('rm', '-f', `${here}/new`)).code).toBe(0);
});

describe('cp', () => {
  test('a file both ways, with its mode', async () => {
    const directory = scratch();
    writeFileSync(join(directory, 'x.sh'), 'content');
    chmodSync(join(directory, 'x.sh'), 0o755);
    expect(await run('cp', join(directory, 'x.sh'), `:${remote}/`)).toMatchObject({ code: 0 });
    expect(statSync(join(remote, 'x.sh')).mode & 0o777).toBe(0o755);
    expect((await run('cp', `:${remote}/x.sh`, join(directory, 'y.sh'))).code).toBe(0);
    expect(readFileSync(join(directory, 'y.sh'), 'utf8')).toBe('content');
    expect(statSync(join(directory, 'y.sh')).mode & 0o777).toBe(0o755);
    expect((await run('cp', '/etc/hostname', '/tmp/x')).code).toBe(120);
    expect((await run('cp', `:${remote}/none`, directory)).code).toBe(123);
  });

  test('a link that is named is followed, and what it leads to is copied whole', async () => {
    const there = join(remote, 'linked');
    mkdirSync(there);
    const content = 'longer than the link\n';
    writeFileSync(join(there, 'file'), content, { mode: 0o640 });
    writeFileSync(join(there, 'nothing'), '');
    symlinkSync('file', join(there, 'link'));
    symlinkSync('link', join(there, 'link-to-link'));
    symlinkSync('nothing', join(there, 'to-nothing'));
    symlinkSync('gone', join(there, 'dangling'));
    const local = scratch();
    for (const [name, expected] of [
      ['link', content],
      ['link-to-link', content],
      ['to-nothing', ''],
    ] as const) {
      expect(await run('cp', `:${there}/${name}`, join(local, name))).toMatchObject({ code: 0 });
      expect(readFileSync(join(local, name), 'utf8')).toBe(expected);
      expect(await run('cp', `:${there}/${name}`, `:${there}/copy`)).toMatchObject({ code: 0 });
      expect(readFileSync(join(there, 'copy'), 'utf8')).toBe(expected);
    }
    expect(statSync(join(local, 'link')).mode & 0o777).toBe(0o640);
    expect(await run('cp', `:${there}/dangling`, join(local, 'dangling'))).toMatchObject({ code: 120 });
    expect(existsSync(join(local, 'dangling'))).toBe(false);
  });

  test('a directory both ways; to envd with links, modes and times', async () => {
    const tree = makeTree();
    symlinkSync('a/one', join(tree, 'link'));
    const { stdout, code } = await run('cp', '--json', tree, `:${remote}/copied`);
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ files: 5, directories: 3, links: 1, skipped: 0 });
    expect(treeOf(join(remote, 'copied'))).toEqual(treeOf(tree));
    expect(statSync(join(remote, 'copied/run.sh')).mode & 0o777).toBe(0o755);
    expect(statSync(join(remote, 'copied/a/one')).mtimeMs).toBe(1_600_000_000_000);
    // A second time, it goes into the directory.
    await run('cp', tree, `:${remote}/copied`);
    expect(treeOf(join(remote, 'copied/tree'))).toEqual(treeOf(tree));
    const back = join(scratch(), 'back');
    const result = await run('cp', '-P', '3', `:${remote}/copied/tree`, back);
    expect(result).toMatchObject({ code: 0 });
    expect(result.stderr).toContain('left out link: a link');
    const { link: _, ...files } = treeOf(tree);
    expect(treeOf(back)).toEqual(files);
    expect(statSync(join(back, 'a/one')).mtimeMs).toBe(1_600_000_000_000);
  });

  test('a local file whose name is not UTF-8 is left out, and that is told', async () => {
    const directory = join(scratch(), 'names');
    mkdirSync(directory);
    writeFileSync(Buffer.concat([Buffer.from(`${directory}/a`), Buffer.of(0xff)]), '');
    const { code, stdout, stderr } = await run('cp', '--json', directory, `:${remote}/names`);
    expect([code, JSON.parse(stdout)]).toEqual([0, expect.objectContaining({ files: 0, skipped: 1 })]);
    expect(stderr).toContain('left out a\ufffd: ');
  });

  test('between two sandboxes', async () => {
    const other = await owned(startDaemon());
    const settings = scratch();
    const env = { XDG_CONFIG_HOME: settings };
    await envctl('', ['context', 'add', 'one', '--url', daemon.url], { env });
    await envctl('', ['context', 'add', 'two', '--url', other.url], { env });
    const tree = makeTree();
    const result = await envctl('', ['cp', `one:${tree}`, `two:${other.scratch}/there`], { env });
    expect(result).toMatchObject({ code: 0 });
    expect(treeOf(join(other.scratch, 'there'))).toEqual(treeOf(tree));
  });

  test('a download that broke off goes on, and its digest is checked', async () => {
    const content = randomBytes(24 * 1024 * 1024);
    const source = join(remote, 'large');
    writeFileSync(source, content);
    const directory = scratch();
    const relay = await owned(startRelay(daemon.port));
    relay.inject({ kind: 'stall', from: 'server', piece: 60, at: 0.5 });
    const running = startEnvctl(`http://127.0.0.1:${relay.port}`, [
      'cp',
      `:${source}`,
      join(directory, 'large'),
    ]);
    const partOf = () => readdirSync(directory).find((name) => name.endsWith('.envctl-part'));
    await until('a part has come', () => {
      const part = partOf();
      return part !== undefined && statSync(join(directory, part)).size > 0;
    });
    running.child.kill('SIGKILL');
    await running.result;
    const part = join(directory, partOf() ?? '');
    const kept = statSync(part).ino;
    expect(await run('cp', `:${source}`, join(directory, 'large'))).toMatchObject({ code: 0 });
    expect(readFileSync(join(directory, 'large')).equals(content)).toBe(true);
    expect(statSync(join(directory, 'large')).ino).toBe(kept);
    expect(partOf()).toBeUndefined();
  });

  test.each(['SIGINT', 'SIGTERM'] as const)('%s leaves nothing of small files', async (signal) => {
    const source = join(remote, 'small');
    writeFileSync(source, randomBytes(4 * 1024 * 1024));
    const directory = scratch();
    const relay = await owned(startRelay(daemon.port));
    relay.inject({ kind: 'stall', from: 'server', piece: 10, at: 0.5 });
    const running = startEnvctl(`http://127.0.0.1:${relay.port}`, ['cp', `:${source}`, directory]);
    await until('a part of it has come', () => readdirSync(directory).length > 0);
    running.child.kill(signal);
    await running.result;
    expect(running.child.signalCode).toBe(signal);
    expect(readdirSync(directory)).toEqual([]);
  });

  test('a part that is wrong is found by the digest', async () => {
    const source = join(remote, 'digested');
    writeFileSync(source, randomBytes(9 * 1024 * 1024));
    const directory = scratch();
    const destination = join(directory, 'digested');
    const relay = await owned(startRelay(daemon.port));
    relay.inject({ kind: 'stall', from: 'server', piece: 30, at: 0.5 });
    const running = startEnvctl(`http://127.0.0.1:${relay.port}`, ['cp', `:${source}`, destination]);
    const find = () => readdirSync(directory).find((name) => name.endsWith('.envctl-part'));
    const part = await until('there is a part', find);
    running.child.kill('SIGKILL');
    await running.result;
    writeFileSync(join(directory, part), randomBytes(1000));
    const result = await run('cp', `:${source}`, destination);
    expect(existsSync(destination)).toBe(false);
    expect(result).toMatchObject({ code: 125 });
    expect(result.stderr).toContain('did not have the right digest and was removed: try again');
    expect((await run('cp', `:${source}`, destination)).code).toBe(0);
  });

  test('a file that grows while it is copied arrives as it was when the copy began, both ways', async () => {
    const directory = scratch();
    const [here, there] = [join(directory, 'growing.log'), join(remote, 'growing.log')];
    const line = Buffer.from('a line of a log\n'.repeat(64));
    const large = Buffer.concat(Array.from({ length: 9 * 1024 }, () => line));
    for (const path of [here, there]) writeFileSync(path, large);
    const writer = spawn('sh', ['-c', 'while :; do echo more | tee -a "$1" >>"$2"; done', '-', here, there]);
    endWithTests(writer);
    await until('it grows', () => statSync(there).size > large.length && statSync(here).size > large.length);
    expect(await run('cp', `:${there}`, join(directory, 'down'))).toMatchObject({ code: 0 });
    expect(await run('cp', here, `:${join(remote, 'up')}`)).toMatchObject({ code: 0 });
    writer.kill('SIGKILL');
    for (const [copy, source] of [
      [join(directory, 'down'), there],
      [join(remote, 'up'), here],
    ] as const) {
      const arrived = readFileSync(copy);
      expect(arrived.length).toBeGreaterThan(large.length);
      expect(readFileSync(source).subarray(0, arrived.length).equals(arrived)).toBe(true);
    }
    expect(readdirSync(directory).filter((name) => name.endsWith('.envctl-part'))).toEqual([]);
  });

  test('a large upload goes in parts, and those that are there are not sent again', async () => {
    const directory = scratch();
    const source = join(directory, 'huge');
    const content = randomBytes(1024 * 1024);
    writeFileSync(source, Buffer.concat(Array.from({ length: 130 }, () => content)));
    const destination = join(remote, 'huge');
    const running = startEnvctl(daemon.url, ['cp', '-P', '1', source, `:${destination}`]);
    const parts = () => readdirSync(remote).filter((name) => name.endsWith('.envctl-part'));
    await until('a part is there', () => parts().length > 0);
    running.child.kill('SIGKILL');
    await running.result;
    const [first = ''] = parts();
    const { ino, ctimeMs } = statSync(join(remote, first));
    const again = startEnvctl(daemon.url, ['cp', '--json', source, `:${destination}`]);
    const seen = await until('the part is still the same, or the file is there', () => {
      if (existsSync(destination)) return 'there';
      const now = statSync(join(remote, first), { throwIfNoEntry: false });
      return now && parts().length > 1 ? now : null;
    });
    if (seen !== 'there') expect({ ino: seen.ino, ctimeMs: seen.ctimeMs }).toEqual({ ino, ctimeMs });
    expect((await again.result).code).toBe(0);
    expect(readFileSync(destination).equals(readFileSync(source))).toBe(true);
    expect(parts()).toEqual([]);
  });
});

describe('sync', () => {
  test('transfers what differs, and removes with --delete', async () => {
    const tree = makeTree();
    const there = join(remote, 'synced');
    const sync = async (...args: string[]) =>
      JSON.parse((await run('sync', '--json', ...args, tree, `:${there}`)).stdout);
    expect(await sync()).toMatchObject({ files: 5, same: 0 });
    expect(await sync()).toMatchObject({ files: 0, same: 8 });
    writeFileSync(join(tree, 'a/one'), 'two');
    writeFileSync(join(there, 'extra'), 'x');
    expect(await sync('-n', '--delete')).toEqual({
      transfer: ['a/one'],
      modes: [],
      remove: ['extra'],
      same: 7,
    });
    expect(await sync('--delete')).toMatchObject({ files: 1, removed: 1, same: 7 });
    expect(treeOf(there)).toEqual(treeOf(tree));
    // Another time and the same content: the digest says so.
    utimesSync(join(tree, 'a/one'), 1_500_000_000, 1_500_000_000);
    expect(await sync()).toMatchObject({ files: 0, same: 8 });
    // The same time and size, and other content: only the digest can say so.
    const { atime, mtime } = statSync(join(tree, 'run.sh'));
    writeFileSync(join(tree, 'run.sh'), '#!/bin/zz\n'.slice(0, 10));
    utimesSync(join(tree, 'run.sh'), atime, mtime);
    expect(await sync('--checksum')).toMatchObject({ files: 1 });
    const back = join(scratch(), 'back');
    const down = async () => JSON.parse((await run('sync', '--json', `:${there}`, back)).stdout);
    expect(await down()).toMatchObject({ files: 5 });
    expect(await down()).toMatchObject({ files: 0, same: 8 });
    expect(treeOf(back)).toEqual(treeOf(tree));
  });

  test('--watch transfers what changes', async () => {
    const tree = makeTree();
    const there = join(remote, 'watched');
    const running = startEnvctl(daemon.url, ['sync', '--watch', '--json', tree, `:${there}`]);
    await until('the first time', () => existsSync(join(there, 'run.sh')));
    writeFileSync(join(tree, 'later'), 'news');
    const arrived = () =>
      existsSync(join(there, 'later')) ? readFileSync(join(there, 'later'), 'utf8') : '';
    const news = await until('the change has arrived', arrived, (text) => text !== '');
    expect(news).toBe('news');
    running.child.kill('SIGINT');
    await running.result;
  });
});

test.each(['local', 'remote'])(
  'sync --watch goes on when its %s source is removed and comes back',
  async (side) => {
    const [here, beyond] = side === 'local' ? [scratch(), remote] : [remote, scratch()];
    const [tree, there] = [join(here, `gone-${side}`), join(beyond, `there-${side}`)];
    mkdirSync(tree);
    writeFileSync(join(tree, 'one'), '');
    const args = side === 'local' ? [tree, `:${there}`] : [`:${tree}`, there];
    const running = startEnvctl(daemon.url, ['sync', '--watch', ...args]);
    const arrives = (name: string) => until(`${name} has arrived`, () => existsSync(join(there, name)));
    await arrives('one');
    rmSync(tree, { recursive: true });
    await until('it has told that', () => running.stderr().includes('it is tried again'));
    mkdirSync(tree);
    writeFileSync(join(tree, 'two'), '');
    await arrives('two');
    writeFileSync(join(tree, 'three'), '');
    await arrives('three');
    expect(existsSync(join(there, 'one'))).toBe(true);
    running.child.kill('SIGINT');
    await running.result;
  },
);

test('sync --watch goes on when files vanish and shrink while it transfers them', async () => {
  const tree = join(makeTree(), 'busy');
  mkdirSync(tree);
  const there = join(remote, 'busy');
  const at = (index: number) => join(tree, `${index % 50}`);
  for (let index = 0; index < 50; index++) writeFileSync(at(index), Buffer.alloc(100_000));
  const running = startEnvctl(daemon.url, ['sync', '--watch', '--json', tree, `:${there}`]);
  for (let round = 0; round < 500; round++) {
    rmSync(at(round), { force: true });
    writeFileSync(at(round * 7), Buffer.alloc(100_000));
    writeFileSync(at(round * 3), '');
    await sleep(4);
  }
  writeFileSync(join(tree, 'last'), 'news');
  await until('the last change has arrived', () => existsSync(join(there, 'last')));
  expect(readFileSync(join(there, 'last'), 'utf8')).toBe('news');
  running.child.kill('SIGINT');
  await running.result;
});

test('watch prints a line per event, and runs a command with the name in a variable', async () => {
  const here = join(remote, 'seen');
  mkdirSync(here);
  const args = [
    'watch',
    here,
    '--count',
    '2',
    '--exec',
    'printf "<%s %s>\\n" "$ENVCTL_EVENT" "$ENVCTL_NAME"',
  ];
  const running = startEnvctl(daemon.url, args);
  await until('it watches', () => running.stderr().includes('[watching]'));
  mkdirSync(join(here, '$(touch pwned) `x`'));
  mkdirSync(join(here, '\x1b[2Jnext'));
  const { stdout, code } = await running.result;
  expect(code).toBe(0);
  expect(stdout).toContain('create  $(touch pwned) `x`\n<create $(touch pwned) `x`>\n');
  expect(stdout).toContain('create  \\x1b[2Jnext\n');
});

describe('edit', () => {
  const edit = (path: string, script: string) =>
    envctl(daemon.url, ['edit', path], { env: { EDITOR: `sh -c '${script}' --`, TERM: 'dumb' } });

  test('writes what the editor has made of a file, and of none', async () => {
    const path = join(remote, 'edited.txt');
    writeFileSync(path, 'roses\n');
    expect(await edit(path, 'echo red >>"$1"')).toMatchObject({ code: 0, stderr: 'written\n' });
    expect(readFileSync(path, 'utf8')).toBe('roses\nred\n');
    expect(await edit(path, 'true')).toMatchObject({ code: 0, stderr: 'not changed\n' });
    expect(await edit(`${path}.new`, 'echo new >"$1"')).toMatchObject({ code: 0 });
    expect(readFileSync(`${path}.new`, 'utf8')).toBe('new\n');
  });

  test('leaves a file that somebody else has changed meanwhile, and keeps the version', async () => {
    const path = join(remote, 'conflict.txt');
    writeFileSync(path, 'a');
    const result = await edit(path, `echo mine >"$1"; echo theirs >${path}`);
    expect(result).toMatchObject({ code: 125 });
    expect(readFileSync(path, 'utf8')).toBe('theirs\n');
    const [, kept = ''] = /kept as (.+)\n/.exec(result.stderr) ?? [];
    expect(readFileSync(kept, 'utf8')).toBe('mine\n');
    rmSync(join(kept, '..'), { recursive: true });
  });

  test('^C in the editor does not end it', async () => {
    const path = join(remote, 'interrupted.txt');
    const editor = `sh -c 'trap "echo mine >\\"$1\\"; exit 0" INT; echo begun; while :; do sleep 0.1; done' --`;
    const terminal = new EnvctlTerminal(daemon.url, ['edit', path], { EDITOR: editor });
    await terminal.shows(/begun/);
    terminal.type('\x03');
    expect(await terminal.exit).toBe(0);
    expect(readFileSync(path, 'utf8')).toBe('mine\n');
  });

  test('tells where the version is kept when the daemon has gone meanwhile', async () => {
    const other = await owned(startDaemon());
    const path = join(other.scratch, 'gone.txt');
    writeFileSync(path, 'a');
    const editor = `sh -c 'echo mine >"$1"; kill -9 ${other.pid}' --`;
    const result = await envctl(other.url, ['edit', path], { env: { EDITOR: editor } });
    expect(result).toMatchObject({ code: 121 });
    const [, kept = ''] = /kept as (.+)\n/.exec(result.stderr) ?? [];
    expect(readFileSync(kept, 'utf8')).toBe('mine\n');
    rmSync(join(kept, '..'), { recursive: true });
  });
});

test('on a terminal, cat shows control characters as escapes, and progress is drawn', async () => {
  const path = join(remote, 'evil.txt');
  writeFileSync(path, 'a\x1b[31mred\x9b2J\x07\n\tb\n');
  const terminal = new EnvctlTerminal(daemon.url, ['cat', path]);
  expect(await terminal.exit).toBe(0);
  expect(terminal.screen).toBe('a\\x1b[31mred\\x9b2J\\x07\r\n\tb\r\n');
  const raw = new EnvctlTerminal(daemon.url, ['cat', '--raw', path]);
  await raw.exit;
  expect(raw.screen).toContain('\x1b[31mred');
  const large = join(remote, 'progress');
  writeFileSync(large, randomBytes(40 * 1024 * 1024));
  const copying = new EnvctlTerminal(daemon.url, ['cp', `:${large}`, scratch()]);
  expect(await copying.exit).toBe(0);
  expect(copying.screen).toMatch(/\d+% \[#*\.*\] [\d.]+ [KM]iB of 40\.0 MiB, .*\/s, .* left/);
});
