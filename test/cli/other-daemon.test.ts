import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { pack } from 'tar-stream';
import { describe, expect, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { EnvctlTerminal, envctl } from '../support/programs/envctl.ts';
import { owned } from '../support/programs/owned.ts';
import { type StubOptions, startStubDaemon } from '../support/servers/stub-daemon.ts';

/* A daemon that knows the published interface alone, and one that is hostile. */

const TREE = { '/d': null, '/d/poem': 'roses\n', '/d/sub': null, '/d/sub/deep': 'deep' };
const stub = (options: StubOptions = {}) => owned(startStubDaemon({ tree: TREE, ...options }));

describe('a daemon without extensions', () => {
  test('runs commands, with input, output, exit codes and errors', async () => {
    const { url } = await stub();
    expect(await envctl(url, ['run', 'echo', 'a', 'b'])).toMatchObject({ code: 0, stdout: 'a b\n' });
    expect(await envctl(url, ['run', 'cat'], { input: 'in' })).toMatchObject({ code: 0, stdout: 'in' });
    expect(await envctl(url, ['run', 'fail'])).toMatchObject({ code: 3, stderr: 'no\n' });
    expect(await envctl(url, ['run', 'refuse'])).toMatchObject({
      code: 125,
      stderr: 'envctl: cannot start\n',
    });
    expect(await envctl(url, ['attach', '7', '--no-input'])).toMatchObject({ code: 4, stdout: 'attached\n' });
  });

  test('is not asked for limits, which it would ignore', async () => {
    const { url } = await stub();
    const { code, stderr } = await envctl(url, ['run', '--memory', '1M', 'echo', 'a']);
    expect([code, stderr]).toEqual([125, expect.stringContaining('does not offer limits of a process')]);
  });

  test('lists processes and signals them', async () => {
    const { url, signals } = await stub();
    expect(JSON.parse((await envctl(url, ['ps', '--json'])).stdout)).toEqual({
      processes: [{ pid: 7, tag: 'tag', cmd: 'sh', args: ['-c'], cwd: null, state: null, ageSeconds: null }],
    });
    expect((await envctl(url, ['kill', '-s', 'KILL', '7'])).code).toBe(0);
    expect(await envctl(url, ['kill', '-s', 'HUP', '7'])).toMatchObject({ code: 125 });
    expect(signals).toEqual([9]);
  });

  test('copies directories both ways, file by file, and leaves links out', async () => {
    const { url, uploads } = await stub();
    const directory = scratch();
    const down = join(directory, 'down');
    expect(await envctl(url, ['cp', ':/d', down])).toMatchObject({ code: 0 });
    expect(readFileSync(join(down, 'poem'), 'utf8')).toBe('roses\n');
    expect(readFileSync(join(down, 'sub/deep'), 'utf8')).toBe('deep');
    symlinkSync('poem', join(down, 'link'));
    const { code, stderr } = await envctl(url, ['cp', down, ':/up']);
    expect(code).toBe(0);
    expect(stderr).toContain('left out link: a link, which this daemon cannot make');
    expect(Object.fromEntries(Array.from(uploads, ([path, content]) => [path, content.toString()]))).toEqual({
      '/up/poem': 'roses\n',
      '/up/sub/deep': 'deep',
    });
  });

  test('lists, prints and watches', async () => {
    const { url } = await stub();
    expect((await envctl(url, ['ls', '/d'])).stdout).toBe('poem\nsub\n');
    expect((await envctl(url, ['cat', '/d/poem'])).stdout).toBe('roses\n');
    const { stdout } = await envctl(url, ['watch', '/d']);
    expect(stdout).toBe('create  new.txt\nwrite   \\x1b]0;title\\x07\n');
    expect(
      (await envctl(url, ['watch', '/d', '--json'])).stdout
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line)),
    ).toEqual([
      { event: 'start' },
      { event: 'create', name: 'new.txt', entry: null },
      { event: 'write', name: '\x1b]0;title\x07', entry: null },
    ]);
  });

  test('doctor says that it is not envd, and is content', async () => {
    const { url } = await stub();
    const { code, stdout } = await envctl(url, ['doctor']);
    expect(code).toBe(0);
    expect(stdout).toContain('not told; this is not envd');
    expect((await envctl(url, ['upgrade'])).code).not.toBe(0);
  });
});

describe('a hostile daemon', () => {
  const EVIL = '\x1b]0;owned\x07\x1b[2J\x9b31m\r\n\u202eevil\u0085';

  test.each([
    ['ps', ['ps']],
    ['ps in JSON', ['ps', '--json']],
    ['the text of an error', ['run', 'refuse']],
    ['the text of an error in JSON', ['run', '--json', 'refuse']],
  ])('cannot act on the terminal: %s', async (_, args) => {
    const { url } = await stub({ text: EVIL });
    const { stdout, stderr } = await envctl(url, args);
    const written = stdout + stderr;
    expect(written).toContain('evil');
    expect(written.replaceAll('\n', '')).not.toMatch(/\p{Cc}|\u202e/u);
  });

  test('cannot act on it with colors either', async () => {
    const { url } = await stub({ text: EVIL });
    const terminal = new EnvctlTerminal(url, ['ps']);
    expect(await terminal.exit).toBe(0);
    expect(terminal.screen).toContain('evil');
    const [plain = '', ...styled] = terminal.screen.split('\x1b');
    for (const piece of styled) expect(piece).toMatch(/^\[\d+m/);
    expect([plain, ...styled].join('').replaceAll('\r\n', '')).not.toMatch(/\p{Cc}|\u202e/u);
  });

  test.each([
    ['signal: killed', 137],
    ['signal: constructor', 128],
    ['signal: signal 64', 192],
    ['signal: signal 128', 128],
  ])('cannot make up the exit code of a signal: %s', async (status, code) => {
    const { url } = await stub();
    expect(await envctl(url, ['run', 'signal', status])).toMatchObject({ code, stderr: '' });
  });

  test('cannot fill the memory by a line that does not end', async () => {
    const { url } = await stub();
    const { code, stderr } = await envctl(url, ['ports', '--watch']);
    expect([code, stderr]).toEqual([125, 'envctl: the daemon sends a line that does not end\n']);
  });

  test.each([
    ['../escaped'],
    ['..'],
    ['.'],
    [''],
    ['/etc/escaped'],
    ['a/../../escaped'],
    ['a\0b'],
    ['x'.repeat(1000)],
  ])('cannot lead a copy elsewhere: a listing with the name %j', async (name) => {
    const { url } = await stub({ hostileNames: ['good', name] });
    const directory = scratch();
    const result = await envctl(url, ['cp', ':/list', join(directory, 'inner')]);
    expect(result).toMatchObject({ code: 125 });
    expect(result.stderr).toContain('lists a name that is none');
    expect(readdirSync(directory).filter((each) => each !== 'inner')).toEqual([]);
    expect(existsSync('/etc/escaped')).toBe(false);
  });

  test('cannot write through a link that is in the destination', async () => {
    const { url } = await stub();
    const [directory, outside] = [scratch(), scratch()];
    mkdirSync(join(directory, 'd'));
    symlinkSync(outside, join(directory, 'd/sub'));
    writeFileSync(join(outside, 'target'), 'safe');
    symlinkSync(join(outside, 'target'), join(directory, 'd/poem'));
    const result = await envctl(url, ['cp', ':/d', directory]);
    expect(result).toMatchObject({ code: 125 });
    expect(result.stderr).toMatch(/d\/sub is a link, which is not followed/);
    expect(readdirSync(outside)).toEqual(['target']);
    expect(readFileSync(join(outside, 'target'), 'utf8')).toBe('safe');
  });

  test('cannot lead a copy elsewhere by an archive: only listed files are written', async () => {
    const [directory, outside] = [scratch(), scratch()];
    const archive = pack();
    for (const name of ['../escaped', `${outside}/escaped`, 'sub/../../escaped', 'unlisted'])
      archive.entry({ name }, 'evil');
    archive.entry({ name: 'sub', type: 'symlink', linkname: outside });
    archive.entry({ name: 'sub/deep' }, 'DEEP');
    archive.entry({ name: 'poem' }, 'of another size');
    archive.finalize();
    const { url } = await stub({ archive: await buffer(archive) });
    expect(await envctl(url, ['cp', ':/d', join(directory, 'd')])).toMatchObject({ code: 0 });
    expect(readdirSync(directory)).toEqual(['d']);
    expect(readdirSync(outside)).toEqual([]);
    const copied = ['poem', 'sub/deep'].map((name) => readFileSync(join(directory, 'd', name), 'utf8'));
    // The first was not in the archive as it was listed, and came alone.
    expect(copied).toEqual(['roses\n', 'DEEP']);
    expect(readdirSync(join(directory, 'd'))).toEqual(['poem', 'sub']);
  });

  test.each([
    ['a member of a tebibyte', 2 ** 40],
    ['a member that breaks off', 100],
  ])('does not hold up a copy by %s', async (_, size) => {
    const archive = pack();
    archive.entry({ name: 'unlisted', size });
    const { value: header } = await archive[Symbol.asyncIterator]().next();
    const { url } = await stub({ archive: Buffer.concat([header, Buffer.from('evil')]) });
    const result = await envctl(url, ['cp', ':/d', join(scratch(), 'd')]);
    expect(result).toMatchObject({ code: 125 });
    expect(result.stderr).toMatch(/wrong sizes|Unexpected end/);
  });
});
