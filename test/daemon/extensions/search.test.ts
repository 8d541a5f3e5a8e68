import { mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import {
  FileType,
  type FindRequestSchema,
  type FindResponse_EndEvent,
  type FindResponse_FoundEvent,
} from '../../../src/gen/filesystem/filesystem_pb.js';
import { type Clients, connectTo } from '../../support/clients/clients.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

let daemon: TestDaemon;
let clients: Clients;
let top: string;
beforeAll(async () => {
  daemon = await startDaemon();
  clients = connectTo(daemon.url, 'binary');
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

let count = 0;
beforeEach(() => {
  count += 1;
  top = join(daemon.scratch, `tree-${count}`);
  mkdirSync(top);
});

function plant(files: Readonly<Record<string, string | Buffer>>): void {
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(join(top, name, '..'), { recursive: true });
    writeFileSync(join(top, name), content);
  }
}

type Query = MessageInitShape<typeof FindRequestSchema>;

async function find(query: Query, using = clients) {
  const found: FindResponse_FoundEvent[] = [];
  let end: FindResponse_EndEvent | null = null;
  for await (const { event } of using.filesystem.find({ path: top, ...query })) {
    if (event.case === 'found') found.push(event.value);
    if (event.case === 'end') end = event.value;
  }
  if (end === null) throw new Error('no end event');
  const paths = found.map(({ path, line }) => path.slice(top.length + 1) + (line > 0 ? `:${line}` : ''));
  return { found, paths, end };
}

const refusal = (call: Promise<unknown>) =>
  call.then(
    () => 'ok',
    (error) => [ConnectError.from(error).code, ConnectError.from(error).rawMessage],
  );

describe('names', () => {
  beforeEach(() => {
    plant({ 'a.ts': '1', 'a.test.ts': '', 'b/c.ts': '333', 'b/d/e.js': '', z: '' });
    symlinkSync('a.ts', join(top, 'link.ts'));
    symlinkSync('b', join(top, 'way'));
  });

  test('without globs: all entries, sorted, files before directories, links not followed', async () => {
    const { paths, found, end } = await find({});
    expect(paths).toEqual(['a.test.ts', 'a.ts', 'link.ts', 'way', 'z', 'b', 'b/c.ts', 'b/d', 'b/d/e.js']);
    expect(found.map(({ type }) => FileType[type]).slice(1, 6)).toEqual([
      'FILE',
      'SYMLINK',
      'SYMLINK',
      'FILE',
      'DIRECTORY',
    ]);
    expect(found.find(({ path }) => path.endsWith('c.ts'))?.size).toBe(3n);
    expect(end).toMatchObject({ results: 9, truncated: false, unreadable: 0 });
  });

  test.each([
    [['*.ts'], ['a.test.ts', 'a.ts', 'link.ts', 'b/c.ts']],
    [
      ['*.ts', '!*.test.ts'],
      ['a.ts', 'link.ts', 'b/c.ts'],
    ],
    [['/*.ts'], ['a.test.ts', 'a.ts', 'link.ts']],
    [['b/**/*.js'], ['b/d/e.js']],
    [['!b'], ['a.test.ts', 'a.ts', 'link.ts', 'way', 'z']],
    [['[ab].{ts}'], []],
    [['A.TS'], []],
  ])('%j finds %j', async (name, expected) => {
    expect((await find({ name })).paths).toEqual(expected);
  });

  test('a limit, and a path that is a file, a link, or missing', async () => {
    expect((await find({ maxResults: 2 })).end).toMatchObject({ results: 2, truncated: true });
    expect((await find({ maxResults: 9 })).end).toMatchObject({ results: 9, truncated: false });
    const file = join(top, 'a.ts');
    expect((await find({ path: file })).found.map(({ path }) => path)).toEqual([file]);
    const way = join(top, 'way');
    expect((await find({ path: way })).found.map(({ path }) => path)).toContain(`${way}/c.ts`);
    expect(await refusal(find({ path: join(top, 'none') }))).toEqual([
      Code.NotFound,
      expect.stringContaining('none'),
    ]);
  });

  test('names that are not UTF-8 are told reversibly', async () => {
    writeFileSync(Buffer.concat([Buffer.from(`${top}/x`), Buffer.from([0xff])]), 'here');
    const { found } = await find({ name: ['x*'], content: 'here' });
    expect(found[0]?.path).toBe(`${top}/x\uefff`);
  });
});

describe('content', () => {
  test('lines, columns and context', async () => {
    plant({ f: 'one\ntwo three\r\nfour\n\nthree three\nend three' });
    const { found, end } = await find({ content: 'three', context: 1 });
    expect(
      found.map(({ line, column, text, before, after }) => ({ line, column, text, before, after })),
    ).toEqual([
      { line: 2, column: 5, text: 'two three', before: ['one'], after: ['four'] },
      { line: 5, column: 1, text: 'three three', before: [''], after: ['end three'] },
      { line: 6, column: 5, text: 'end three', before: ['three three'], after: [] },
    ]);
    expect(end).toMatchObject({ results: 3, searched: 1, skipped: 0 });
  });

  test.each<[Query, readonly string[]]>([
    [{ content: 'a.c' }, ['f:1']],
    [{ content: 'a.c', regex: true }, ['f:1', 'f:2']],
    [{ content: 'ABC', ignoreCase: true }, ['f:2']],
    [{ content: '^x', regex: true }, ['f:3']],
    [{ content: '^', regex: true }, ['f:1', 'f:2', 'f:3', 'f:4']],
    [{ content: 'x$', regex: true }, ['f:3']],
    [{ content: '\\bxx?\\b', regex: true }, ['f:3']],
  ])('%j', async (query, expected) => {
    plant({ f: 'a.c\nabc\nx\n\n', empty: '' });
    expect((await find({ name: ['f'], ...query })).paths).toEqual(expected);
  });

  test.each<[Query, readonly string[]]>([
    [{ content: '^', regex: true }, ['1:1', '2:1', '3:1', '4:1']],
    [{ content: '$', regex: true }, ['1:4', '2:1', '3:11', '4:4']],
    [{ content: '^one$', regex: true }, ['1:1']],
    [{ content: '[^\\n]+$', regex: true }, ['1:1', '3:1', '4:1']],
    [{ content: '^(two|three|end)', regex: true }, ['3:1', '4:1']],
    [{ content: '\\^|[$^]', regex: true }, []],
    [{ content: '^one' }, []],
  ])('%j in text with a byte order mark, CRLF, CR and U+2028', async (query, expected) => {
    plant({ f: '\ufeffone\r\n\r\ntwo\rthree\u2028\r\nend\r\n' });
    expect((await find(query)).found.map(({ line, column }) => `${line}:${column}`)).toEqual(expected);
  });

  test('text in UTF-16 with a byte order mark is left out, and counted', async () => {
    const text = Buffer.from('\ufeff\u4e2dA\u4e2d'.replace('A', '\u4141'), 'utf16le');
    plant({ little: text, big: Buffer.from(text).swap16(), utf8: '\ufeffAA' });
    const { paths, end } = await find({ content: 'AA' });
    expect(paths).toEqual(['utf8:1']);
    expect(end).toMatchObject({ searched: 1, skipped: 2 });
  });

  test('binary and large files are left out, and counted', async () => {
    plant({ binary: 'needle\0', large: `needle${'.'.repeat(100)}`, small: 'needle' });
    const { paths, end } = await find({ content: 'needle', maxFileBytes: 50 });
    expect(paths).toEqual(['small:1']);
    expect(end).toMatchObject({ searched: 1, skipped: 2 });
  });

  test('of a long line the part around the match', async () => {
    plant({ f: `${'a'.repeat(5000)}needle${'b'.repeat(5000)}` });
    const [match] = (await find({ content: 'needle' })).found;
    expect(match?.column).toBe(5001);
    expect(match?.text).toHaveLength(1000);
    expect(match?.text).toContain('aneedleb');
  });

  test('an invalid expression and wrong numbers are refused', async () => {
    expect(await refusal(find({ content: '(', regex: true }))).toEqual([
      Code.InvalidArgument,
      expect.stringContaining('Invalid regular expression'),
    ]);
    expect(await refusal(find({ context: 21 }))).toEqual([
      Code.InvalidArgument,
      'context must be at most 20, not 21',
    ]);
    expect(await refusal(find({ name: [''] }))).toEqual([
      Code.InvalidArgument,
      'name has an empty glob: send less',
    ]);
  });
});

describe('.gitignore', () => {
  beforeEach(() => {
    plant({
      '.git/config': '',
      '.gitignore': '*.log\nbuild/\n/only-top\n',
      'a.log': '',
      'build/x': '',
      'only-top': '',
      'src/.gitignore': '!keep.log\n',
      'src/keep.log': '',
      'src/other.log': '',
      'src/only-top': '',
    });
  });

  test('is respected on request only', async () => {
    expect((await find({ gitignore: true, name: ['!.gitignore'] })).paths).toEqual([
      'src',
      'src/keep.log',
      'src/only-top',
    ]);
    expect((await find({ name: ['*.log'] })).paths).toEqual(['a.log', 'src/keep.log', 'src/other.log']);
  });

  test('of the directories above, too', async () => {
    const { paths } = await find({ path: join(top, 'src'), gitignore: true, name: ['*.log'] });
    expect(paths).toEqual(['src/keep.log']);
  });
});

describe('replace', () => {
  const replace = (request: Parameters<Clients['filesystem']['replace']>[0]) =>
    clients.filesystem.replace({ path: top, ...request });
  const text = (name: string) => readFileSync(join(top, name), 'utf8');

  test('literally, in all files, and other bytes stay', async () => {
    plant({
      a: 'x.y x-y x.y\r\n',
      'b/c': 'x.y',
      d: 'none',
      binary: 'x.y\0',
      latin: Buffer.from('x.y\xff', 'latin1'),
    });
    const { ino, mode } = statSync(join(top, 'a'));
    const { files, count: all, skipped } = await replace({ content: 'x.y', replacement: '$& longer' });
    expect(files.map(({ path, count: each, diff }) => [path, each, diff])).toEqual([
      [join(top, 'a'), 2, ''],
      [join(top, 'b/c'), 1, ''],
    ]);
    expect([all, skipped]).toEqual([3, 2]);
    expect([text('a'), text('b/c'), text('d')]).toEqual(['$& longer x-y $& longer\r\n', '$& longer', 'none']);
    expect(statSync(join(top, 'a'))).toMatchObject({ ino, mode });
    const shorter = await replace({ content: '$& longer', replacement: '' });
    expect([shorter.count, text('a'), text('b/c')]).toEqual([3, ' x-y \r\n', '']);
  });

  test('by a regular expression with groups', async () => {
    plant({ f: 'key = 1\nother = 2\n' });
    await replace({ content: '^(?<k>\\w+) = (\\d)', regex: true, replacement: '$2: $<k>' });
    expect(text('f')).toBe('1: key\n2: other\n');
  });

  test.each([
    ['^', '> ', 4, '\ufeff> one\r\n> \r\n> two\rthree\u2028\r\n> end\r\n'],
    ['$', ';', 4, '\ufeffone;\r\n;\r\ntwo\rthree\u2028;\r\nend;\r\n'],
    ['[^\\n]+$', 'x', 3, '\ufeffx\r\n\r\nx\r\nx\r\n'],
    ['^(\\w+)$', '<$1>', 2, '\ufeff<one>\r\n\r\ntwo\rthree\u2028\r\n<end>\r\n'],
  ])(
    '%j by %j, and line ends and the byte order mark stay',
    async (content, replacement, times, expected) => {
      plant({ f: '\ufeffone\r\n\r\ntwo\rthree\u2028\r\nend\r\n' });
      expect((await replace({ content, regex: true, replacement })).count).toBe(times);
      expect(text('f')).toBe(expected);
    },
  );

  test('the position after the last line end belongs to no line', async () => {
    plant({ f: 'a\nb\n', g: 'c' });
    expect((await replace({ content: '^', regex: true, replacement: '# ' })).count).toBe(3);
    expect([text('f'), text('g')]).toEqual(['# a\n# b\n', '# c']);
  });

  test('an expected count that differs changes nothing', async () => {
    plant({ f: 'a a', g: 'a' });
    expect(await refusal(replace({ content: 'a', replacement: 'b', expectedCount: 2 }))).toEqual([
      Code.FailedPrecondition,
      'expected 2 matches and found 3: nothing was changed',
    ]);
    expect([text('f'), text('g')]).toEqual(['a a', 'a']);
    expect((await replace({ content: 'a', replacement: 'b', expectedCount: 3 })).count).toBe(3);
    expect([text('f'), text('g')]).toEqual(['b b', 'b']);
  });

  test('a dry run is a unified diff', async () => {
    plant({ 'd/f': 'one\ntwo\nthree\n' });
    const { files } = await replace({ content: 'two', replacement: '2', dryRun: true });
    expect(files[0]?.diff.split('\n').slice(1)).toEqual([
      '--- a/d/f',
      '+++ b/d/f',
      '@@ -1,3 +1,3 @@',
      ' one',
      '-two',
      '+2',
      ' three',
      '',
    ]);
    expect(text('d/f')).toBe('one\ntwo\nthree\n');
  });
});
