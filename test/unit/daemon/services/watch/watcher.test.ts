import {
  appendFileSync,
  chmodSync,
  chownSync,
  closeSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmdirSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { PathHandle } from '../../../../../src/daemon/linux/files/place.ts';
import { ADA } from '../../../../support/machine/users.ts';
import { testLanes } from '../../../../support/services/lanes.ts';
import { WatchFixture } from '../../../../support/services/watch.ts';

function fixture(): WatchFixture {
  const made = new WatchFixture();
  mkdirSync(made.dir);
  return made;
}

describe('one directory', () => {
  test('reports the changes of its entries in order', async () => {
    await using f = fixture();
    const watch = await f.watch({ recursive: false });
    closeSync(openSync(f.at('empty'), 'wx'));
    writeFileSync(f.at('file'), 'content');
    chmodSync(f.at('file'), 0o600);
    appendFileSync(f.at('file'), 'more');
    renameSync(f.at('file'), f.at('renamed'));
    unlinkSync(f.at('renamed'));
    mkdirSync(f.at('directory'));
    rmdirSync(f.at('directory'));
    symlinkSync('nowhere', f.at('link'));
    linkSync(f.at('empty'), f.at('second'));
    unlinkSync(f.at('second'));
    expect(await f.told(watch)).toEqual([
      'create empty',
      'create file',
      'write file',
      'chmod file',
      'write file',
      'rename file',
      'create renamed',
      'remove renamed',
      'create directory',
      'remove directory',
      'create link',
      'create second',
      'remove second',
    ]);
  });

  test('reports nothing from below, and nothing from before the watch', async () => {
    await using f = fixture();
    mkdirSync(f.at('below'));
    writeFileSync(f.at('a'), '');
    const first = await f.watch({ recursive: false });
    // These events are not yet read when the second watch is opened.
    for (let n = 0; n < 20_000; n++) renameSync(f.at(n % 2 ? 'b' : 'a'), f.at(n % 2 ? 'a' : 'b'));
    const second = await f.watch({ recursive: false });
    writeFileSync(f.at('below', 'file'), 'x');
    writeFileSync(f.at('after'), 'x');
    expect(await f.told(second)).toEqual(['create after', 'write after']);
    const told = await f.told(first);
    expect(told).toHaveLength(40_002);
    expect(told.slice(-2)).toEqual(['create after', 'write after']);
  });

  test('reports chown and utimes as CHMOD, and truncate as WRITE', async () => {
    await using f = fixture();
    writeFileSync(f.at('file'), 'content');
    const watch = await f.watch({ recursive: false });
    chownSync(f.at('file'), 1, 1);
    truncateSync(f.at('file'), 7);
    utimesSync(f.at('file'), 1, 1);
    chmodSync(f.dir, 0o700);
    expect(await f.told(watch)).toEqual(['chmod file', 'write file', 'chmod file', 'chmod .']);
  });

  test('reports ten appends as ten writes', async () => {
    await using f = fixture();
    writeFileSync(f.at('file'), '');
    const watch = await f.watch({ recursive: false });
    for (let n = 0; n < 10; n++) appendFileSync(f.at('file'), 'x');
    expect(await f.told(watch)).toEqual(Array(10).fill('write file'));
  });

  test('reports no change of a file without a name', async () => {
    await using f = fixture();
    await using file = await open(f.at('file'), 'w');
    const watch = await f.watch({ recursive: false });
    unlinkSync(f.at('file'));
    await file.write('x');
    expect(await f.told(watch)).toEqual(['remove file']);
  });

  test('reports an upload as CREATE, CHMOD, WRITE', async () => {
    await using f = fixture();
    const watch = await f.watch({ recursive: false });
    using place = await PathHandle.open(f.at('uploaded'), true, testLanes);
    await using file = await place.openUnnamed();
    if (!file) throw new Error('no O_TMPFILE here');
    await file.writev([Buffer.from('content')], null);
    await file.chown(0, 0);
    await place.publish(file, ADA);
    expect(await f.told(watch)).toEqual(['create uploaded', 'chmod uploaded', 'write uploaded']);
    expect(readFileSync(f.at('uploaded'), 'utf8')).toBe('content');
  });

  test('reports a file whose name looks like that of an unnamed file', async () => {
    await using f = fixture();
    const watch = await f.watch();
    writeFileSync(f.at('#12'), 'x');
    chmodSync(f.at('#12'), 0o600);
    expect(await f.told(watch)).toEqual(['create #12', 'write #12', 'chmod #12']);
  });

  test('may be given as a link; paths start with the given one', async () => {
    await using f = fixture();
    symlinkSync(f.dir, f.outside('link'));
    const watch = await f.watch({}, f.outside('link'));
    mkdirSync(f.at('a'));
    const [event] = (await watch.next()) ?? [];
    expect(event).toMatchObject({ type: 'create', name: 'a', path: join(f.outside('link'), 'a') });
  });

  test('may have names that are not UTF-8', async () => {
    await using f = fixture();
    const watch = await f.watch();
    const odd = Buffer.concat([Buffer.from(`${f.dir}/`), Buffer.from([0xff, 0xfe])]);
    mkdirSync(odd);
    writeFileSync(Buffer.concat([odd, Buffer.from('/käse')]), 'x');
    mkdirSync(f.at('new\nline'));
    writeFileSync(f.at('new\nline', 'n'.repeat(255)), '');
    expect(await f.told(watch)).toEqual(
      expect.arrayContaining([
        'create \uefff\ueffe',
        'create \uefff\ueffe/käse',
        'create new\nline',
        `create new\nline/${'n'.repeat(255)}`,
      ]),
    );
    appendFileSync(Buffer.concat([odd, Buffer.from('/käse')]), 'x');
    expect(await f.told(watch)).toEqual(['write \uefff\ueffe/käse']);
  });
});

describe('refusals', () => {
  test('a missing path and a file are refused', async () => {
    await using f = fixture();
    writeFileSync(f.at('file'), '');
    symlinkSync(f.at('loop'), f.at('loop'));
    await expect(f.watch({}, f.at('missing'))).rejects.toMatchObject({ kind: 'not_found' });
    await expect(f.watch({}, f.at('file', 'below'))).rejects.toMatchObject({ kind: 'not_found' });
    await expect(f.watch({}, f.at('loop'))).rejects.toMatchObject({ kind: 'failed_precondition' });
    await expect(f.watch({}, f.at('file'))).rejects.toMatchObject({
      kind: 'invalid_argument',
      message: `path is not a directory: '${f.at('file')}'`,
    });
  });

  test('an aborted signal ends the opening', async () => {
    await using f = fixture();
    const abort = new AbortController();
    const starting = f.watch({ signal: abort.signal });
    abort.abort(new Error('enough'));
    await expect(starting).rejects.toThrow('enough');
  });
});

describe('the end', () => {
  test('dispose ends a waiting reader and drops pending events', async () => {
    await using f = fixture();
    const watch = await f.watch();
    const waiting = watch.next();
    watch[Symbol.dispose]();
    expect(await waiting).toBeNull();
    expect(await watch.next()).toBeNull();
    expect(watch.take()).toBeNull();
  });
});
