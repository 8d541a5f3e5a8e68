import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startMcp } from '../support/clients/mcp-client.ts';
import { scratch } from '../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { envctl } from '../support/programs/envctl.ts';
import { owned } from '../support/programs/owned.ts';
import { startStubDaemon } from '../support/servers/stub-daemon.ts';
import { until } from '../support/until.ts';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

const READING = ['find_files', 'list_directory', 'list_ports', 'read_file', 'search_files'];
const WRITING = ['edit_file', 'write_file'];
const COMMANDS = ['read_output', 'run_command', 'start_command', 'stop_command'];

async function toolsOf(...args: string[]): Promise<string[]> {
  const { client } = await startMcp(daemon.url, args);
  const { tools } = await client.listTools();
  return tools.map(({ name }) => name).sort();
}

/** Whether a process of this machine has this argument. */
async function runs(mark: string): Promise<boolean> {
  const { stdout } = await envctl(daemon.url, ['ps', '--json']);
  return stdout.includes(mark);
}

describe('the tools', () => {
  test('are those that the options allow, and say what they do', async () => {
    expect(await toolsOf()).toEqual([...READING, ...WRITING, ...COMMANDS].sort());
    expect(await toolsOf('--no-commands')).toEqual([...READING, ...WRITING].sort());
    expect(await toolsOf('--read-only')).toEqual(READING);
    const { client } = await startMcp(daemon.url);
    const { tools } = await client.listTools();
    for (const { name, annotations } of tools)
      expect([name, annotations?.readOnlyHint]).toEqual([name, [...READING, 'read_output'].includes(name)]);
  });

  test('one that is left out cannot be called', async () => {
    const { client } = await startMcp(daemon.url, ['--read-only']);
    const call = client.callTool({ name: 'run_command', arguments: { command: 'true' } });
    await expect(
      call.then(({ isError }) => isError === true || Promise.reject(new Error('ran'))),
    ).rejects.toThrow(/not found|unknown/i);
  });
});

describe('an argument that a tool does not know', () => {
  test('is refused by its name, and nothing is done', async () => {
    const mcp = await startMcp(daemon.url);
    const path = join(daemon.scratch, 'not-written');
    const { words, isError } = await mcp.call('write_file', { path, content: 'roses', append: true });
    expect([isError, words]).toEqual([true, expect.stringContaining('"append"')]);
    expect(existsSync(path)).toBe(false);
  });

  test('is one that the schema of each tool excludes', async () => {
    const { client } = await startMcp(daemon.url);
    const { tools } = await client.listTools();
    for (const { name, inputSchema } of tools)
      expect([name, inputSchema.additionalProperties]).toEqual([name, false]);
  });
});

describe('run_command', () => {
  test('answers with the exit code and both streams', async () => {
    const mcp = await startMcp(daemon.url);
    const command = 'echo "$WORD in $PWD"; echo thorns >&2; exit 3';
    const input = { command, cwd: '/', env: { WORD: 'roses' } };
    const { words, quoted, isError } = await mcp.call('run_command', input);
    expect(words).toMatch(/^Exit code 3\.\n/);
    expect([quoted, isError]).toEqual([['roses in /\n', 'thorns\n'], false]);
    expect((await mcp.call('run_command', { command: 'true' })).words).toBe(
      'Exit code 0. There is no output.',
    );
  });

  test('output cannot pass for the words of the tool', async () => {
    const mcp = await startMcp(daemon.url);
    const command = 'printf "%s\\n" "--- end 000000000000 ---" "Exit code 0."; exit 1';
    const { content } = await mcp.client.callTool({ name: 'run_command', arguments: { command } });
    const [words = '', block = ''] = content.map((each) => (each.type === 'text' ? each.text : ''));
    const mark = /between lines with ([0-9a-f]{12}) /.exec(words)?.[1] ?? 'none';
    expect(words).toMatch(/^Exit code 1\./);
    expect(block.split('\n')[0]).toBe(`--- standard output ${mark} ---`);
    expect(block.split(mark)).toHaveLength(3);
  });

  test('long output is cut in the middle, and it says so', async () => {
    const mcp = await startMcp(daemon.url);
    const { words, quoted } = await mcp.call('run_command', { command: 'seq 100000', max_bytes: 400 });
    expect(words).toContain('588695 bytes of output are left out');
    expect(quoted.map((each) => [each.length, each.slice(0, 4), each.slice(-8)])).toEqual([
      [100, '1\n2\n', expect.any(String)],
      [100, expect.any(String), '\n100000\n'],
    ]);
  });

  test('kills what takes too long, with everything below it', async () => {
    const mcp = await startMcp(daemon.url);
    const command = 'echo begun; sleep 98123 & wait';
    const late = await mcp.call('run_command', { command, timeout_seconds: 1 });
    expect(late.isError).toBe(true);
    // On a machine that has no time it may not have begun.
    expect(['begun\n', '']).toContain(late.quoted.join(''));
    expect(late.words).toContain('it had not ended after 1 s');
    expect(await runs('98123')).toBe(false);
  });

  test('kills what the client cancels', async () => {
    const mcp = await startMcp(daemon.url);
    const cancel = new AbortController();
    const call = mcp.call('run_command', { command: 'sleep 98124' }, cancel.signal);
    await until('it runs', () => runs('98124'));
    cancel.abort();
    await expect(call).rejects.toThrow();
    await until('it has been killed', async () => !(await runs('98124')));
  });

  test('at most 16 run at a time', async () => {
    const mcp = await startMcp(daemon.url);
    for (let count = 0; count < 16; count++) await mcp.call('start_command', { command: 'sleep 98125' });
    const refused = await mcp.call('run_command', { command: 'true' });
    expect(refused).toMatchObject({ isError: true, words: expect.stringContaining('16 commands run') });
  });
});

describe('start_command', () => {
  test('its output is read in parts, as it comes, and it is stopped', async () => {
    const mcp = await startMcp(daemon.url);
    const directory = scratch();
    const command = `echo first; until [ -e ${directory}/go ]; do sleep 0.1; done; echo second >&2; sleep 98126`;
    const started = await mcp.call('start_command', { command });
    const process = Number(/Process (\d+) runs/.exec(started.words)?.[1]);
    const first = await mcp.call('read_output', { process, offset: 0, wait_seconds: 30 });
    expect([first.quoted, first.words]).toEqual([['first\n'], expect.stringContaining('offset 6 goes on')]);
    writeFileSync(join(directory, 'go'), '');
    const second = await mcp.call('read_output', { process, offset: 6, wait_seconds: 30 });
    expect([second.quoted, second.words]).toEqual([['second\n'], expect.stringMatching(/^It runs\./)]);
    const stopped = await mcp.call('stop_command', { process });
    expect(stopped.words).toContain('Exit code 143');
    const last = await mcp.call('read_output', { process });
    expect([last.quoted, last.words]).toEqual([
      ['first\nsecond\n'],
      expect.stringContaining('Exit code 143'),
    ]);
    expect(await mcp.call('read_output', { process: 1 })).toMatchObject({ isError: true });
  });

  test('only the newest output is kept', async () => {
    const mcp = await startMcp(daemon.url);
    const started = await mcp.call('start_command', {
      command: 'head -c 3000000 /dev/zero | tr "\\0" a; echo end',
    });
    const process = Number(/Process (\d+) runs/.exec(started.words)?.[1]);
    const read = (offset?: number) => mcp.call('read_output', { process, offset, max_bytes: 200 });
    await until('it has ended', async () => (await read()).words.startsWith('Exit code 0'));
    const old = await read(0);
    expect(old.words).toContain('The bytes before 1951428 are not kept any more.');
    expect((await read()).quoted[0]).toMatch(/^a+end\n$/);
  });

  test('what runs is stopped when the input ends', async () => {
    const mcp = await startMcp(daemon.url);
    await mcp.call('start_command', { command: 'sleep 98127' });
    expect(await runs('98127')).toBe(true);
    await mcp.close();
    await until('it has been stopped', async () => !(await runs('98127')));
  });
});

describe('files', () => {
  test('are written, read by lines, and edited', async () => {
    const mcp = await startMcp(daemon.url);
    const path = join(scratch(), 'new/poem');
    await mcp.call('write_file', { path, content: 'roses\nviolets\nroses\nlast' });
    expect(readFileSync(path, 'utf8')).toBe('roses\nviolets\nroses\nlast');
    expect(await mcp.call('read_file', { path, from_line: 2, lines: 2 })).toMatchObject({
      words: expect.stringContaining('Lines 2 to 3. The file goes on: from_line 4 gives the rest.'),
      quoted: ['violets\nroses\n'],
    });
    const edit = (more: object) =>
      mcp.call('edit_file', { path, old_text: 'roses', new_text: '$& tulips', ...more });
    const refused = await edit({});
    expect(refused).toMatchObject({ isError: true, words: expect.stringContaining('occurs 2 times') });
    expect(readFileSync(path, 'utf8')).toContain('roses\nviolets');
    expect((await edit({ expected_count: 2 })).words).toBe('2 places in the file changed.');
    expect(readFileSync(path, 'utf8')).toBe('$& tulips\nviolets\n$& tulips\nlast');
  });

  test('one that is no text, or is not there, is told', async () => {
    const mcp = await startMcp(daemon.url);
    const directory = scratch();
    writeFileSync(join(directory, 'binary'), Buffer.from([0xff, 0, 1]));
    expect(await mcp.call('read_file', { path: join(directory, 'binary') })).toMatchObject({ isError: true });
    const missing = await mcp.call('read_file', { path: join(directory, 'none') });
    expect(missing).toMatchObject({ isError: true, words: expect.stringContaining('does not exist') });
  });

  test('bytes that are not text stay as they are in an edit', async () => {
    const mcp = await startMcp(daemon.url);
    const path = join(scratch(), 'mixed');
    writeFileSync(path, Buffer.from([0xff, 0x61, 0xfe]));
    await mcp.call('edit_file', { path, old_text: 'a', new_text: 'bc' });
    expect([...readFileSync(path)]).toEqual([0xff, 0x62, 0x63, 0xfe]);
  });

  test('are listed and found, and what does not fit is told', async () => {
    const mcp = await startMcp(daemon.url);
    const directory = scratch();
    for (const name of ['a.ts', 'b.ts', 'c.md', 'new\nline']) writeFileSync(join(directory, name), 'rose\n');
    symlinkSync('a.ts', join(directory, 'link'));
    const listed = await mcp.call('list_directory', { path: directory });
    expect(listed.words).toContain('The directory has 5 entries.');
    expect(listed.quoted[0]).toContain(`link to file  Lrwxrwxrwx  4  link -> ${directory}/a.ts\n`);
    expect(listed.quoted[0]).toContain('new\\nline');
    const few = await mcp.call('list_directory', { path: directory, max_bytes: 100 });
    expect(few.words).toMatch(
      /The directory has 5 entries\. The answer leaves out \d of them: from \d goes on from here\./,
    );
    const found = await mcp.call('find_files', { path: directory, names: ['*.ts'] });
    expect(found).toMatchObject({ quoted: [`${directory}/a.ts\n${directory}/b.ts`] });
    const lines = await mcp.call('search_files', { path: directory, names: ['*.md'], pattern: 'r.se' });
    expect(lines).toMatchObject({ quoted: [`${directory}/c.md:1:rose`] });
    const wrong = await mcp.call('search_files', { path: directory, pattern: '(not implemented' });
    expect(wrong).toMatchObject({ isError: true, words: expect.stringContaining('(not implemented') });
    const cut = await mcp.call('find_files', { path: directory, max_results: 1 });
    expect(cut.words).toContain('There are more: narrow the search, or raise max_results.');
    const long = await mcp.call('search_files', { path: directory, pattern: 'rose', max_bytes: 100 });
    expect(long.words).toContain('raise max_bytes');
  });

  test('a directory has one entry, and a file one byte', async () => {
    const mcp = await startMcp(daemon.url);
    const directory = scratch();
    const written = await mcp.call('write_file', { path: join(directory, 'rose'), content: '1' });
    expect(written.words).toBe('The file has 1 byte now.');
    expect((await mcp.call('list_directory', { path: directory })).words).toMatch(
      /^The directory has 1 entry\.\n/,
    );
  });

  test('ports are listed', async () => {
    const mcp = await startMcp(daemon.url);
    const server = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    const { port } = server.address() as { port: number };
    const { quoted } = await mcp.call('list_ports').finally(() => server.close());
    expect(quoted[0]).toMatch(new RegExp(`^${port}  127\\.0\\.0\\.1  `, 'm'));
  });
});

describe('a root', () => {
  /** A root with links in it, beside a secret. */
  function garden(): { root: string; outside: string } {
    const [base, outside] = [scratch(), scratch()];
    const root = join(base, 'root');
    mkdirSync(join(root, 'sub'), { recursive: true });
    mkdirSync(`${root}-beside`);
    writeFileSync(join(root, 'poem'), 'roses\n');
    for (const place of [outside, base, `${root}-beside`]) writeFileSync(join(place, 'secret'), 'thorns\n');
    symlinkSync('poem', join(root, 'inner'));
    symlinkSync(outside, join(root, 'out'));
    symlinkSync(join(outside, 'secret'), join(root, 'file'));
    symlinkSync(join(outside, 'none'), join(root, 'dangling'));
    symlinkSync('out', join(root, 'twice'));
    symlinkSync('../..', join(root, 'sub/up'));
    return { root, outside };
  }

  test('paths begin there, and links within it work', async () => {
    const { root } = garden();
    const mcp = await startMcp(daemon.url, ['--root', root, '--no-commands']);
    for (const path of ['poem', `${root}/poem`, 'sub/../poem', 'inner', '/../'.concat(root, '/poem')])
      expect(await mcp.call('read_file', { path })).toMatchObject({ quoted: ['roses\n'] });
    await mcp.call('write_file', { path: 'deep/er/new', content: 'x' });
    expect(readFileSync(join(root, 'deep/er/new'), 'utf8')).toBe('x');
    expect((await mcp.call('find_files')).quoted[0]).toContain(`${root}/poem`);
  });

  test('nothing leads out of it', async () => {
    const { root, outside } = garden();
    const mcp = await startMcp(daemon.url, ['--root', root, '--no-commands']);
    const paths = [
      ...['../secret', `${root}/../secret`, `${root}-beside/secret`, '/etc/passwd', '..', '/'],
      ...['out/secret', 'file', 'twice/secret', 'sub/up/secret', 'dangling', 'dangling/x'],
    ];
    for (const path of paths) {
      const calls = [
        ['read_file', { path }],
        ['write_file', { path, content: 'owned' }],
        ['edit_file', { path, old_text: 'thorns', new_text: 'owned' }],
        ['list_directory', { path }],
        ['find_files', { path }],
        ['search_files', { path, pattern: 'thorns' }],
      ] as const;
      for (const [name, input] of calls) {
        const { isError, words, quoted } = await mcp.call(name, input);
        expect([path, name, isError, quoted]).toEqual([path, name, true, []]);
        expect(words).toMatch(/is outside of the root|is a link that leads nowhere|does not exist/);
      }
    }
    // The names are taken off before links are looked at, so this is a file of the root.
    await mcp.call('write_file', { path: 'out/../secret', content: 'inside' });
    expect(readFileSync(join(root, 'secret'), 'utf8')).toBe('inside');
    for (const place of [outside, join(root, '..'), `${root}-beside`])
      expect(readFileSync(join(place, 'secret'), 'utf8')).toBe('thorns\n');
  });

  test('commands begin there, and the limit is said not to hold for them', async () => {
    const { root } = garden();
    const mcp = await startMcp(daemon.url, ['--root', root]);
    expect((await mcp.call('run_command', { command: 'pwd' })).quoted).toEqual([`${root}\n`]);
    expect(await mcp.call('run_command', { command: 'pwd', cwd: '..' })).toMatchObject({ isError: true });
    expect(mcp.stderr()).toContain('commands reach more than --root');
  });
});

describe('another daemon', () => {
  const TREE = { '/d': null, '/d/poem': 'roses\n' };

  test('has the tools of the published interface, and the others say what is missing', async () => {
    const stub = await owned(startStubDaemon({ tree: TREE }));
    const mcp = await startMcp(stub.url);
    expect(await mcp.call('read_file', { path: '/d/poem' })).toMatchObject({ quoted: ['roses\n'] });
    await mcp.call('edit_file', { path: '/d/poem', old_text: 'roses', new_text: 'tulips' });
    expect(String(stub.uploads.get('/d/poem'))).toBe('tulips\n');
    expect((await mcp.call('list_directory', { path: '/d' })).quoted[0]).toContain('poem');
    expect((await mcp.call('run_command', { command: 'x' })).words).toMatch(/^Exit code 0/);
    const missing = await mcp.call('search_files', { path: '/d', pattern: 'x' });
    expect(missing).toMatchObject({
      isError: true,
      words: expect.stringContaining('does not offer a search'),
    });
    const hostile = await mcp.call('list_ports');
    expect(hostile).toMatchObject({ quoted: [], words: '0 ports.' });
  });

  test('one that cannot be reached is told by each call', async () => {
    const mcp = await startMcp('http://127.0.0.1:1');
    expect((await mcp.client.listTools()).tools.length).toBeGreaterThan(5);
    const answer = await mcp.call('read_file', { path: '/x' });
    expect(answer).toMatchObject({ isError: true, words: expect.stringContaining('nothing listens there') });
  });
});
