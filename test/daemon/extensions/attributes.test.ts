import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { Code, ConnectError } from '@connectrpc/connect';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Clients, connectTo } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

let daemon: TestDaemon;
let rpc: Clients['filesystem'];
let top: string;
beforeAll(async () => {
  daemon = await startDaemon();
  rpc = connectTo(daemon.url).filesystem;
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});
let count = 0;
beforeEach(() => {
  count += 1;
  top = join(daemon.scratch, `dir-${count}`);
  mkdirSync(top);
  writeFileSync(join(top, 'f'), 'content');
});

const at = (name: string) => join(top, name);
const refusal = (call: Promise<unknown>) =>
  call.then(
    () => 'ok',
    (error) => Code[ConnectError.from(error).code],
  );

describe('SetAttributes', () => {
  test('sets mode and times, and leaves the others', async () => {
    const before = statSync(at('f'));
    const modifiedTime = { seconds: 1_000_000_000n, nanos: 5_000_000 };
    const { entry } = await rpc.setAttributes({ path: at('f'), mode: '0640', modifiedTime });
    expect(entry).toMatchObject({ mode: 0o640, modifiedTime, path: at('f') });
    const after = statSync(at('f'));
    expect([after.mtimeMs, after.atimeMs, after.mode & 0o7777]).toEqual([1e12 + 5, before.atimeMs, 0o640]);
    await rpc.setAttributes({ path: top, mode: '1777' });
    expect(statSync(top).mode & 0o7777).toBe(0o1777);
  });

  test('follows a symbolic link, and sets owner and group by name and by number', async () => {
    needs('root');
    symlinkSync('f', at('l'));
    chmodSync(at('f'), 0o4755);
    await rpc.setAttributes({ path: at('l'), owner: 'nobody', group: '7' });
    expect(statSync(at('f'))).toMatchObject({ uid: 65_534, gid: 7 });
    expect(statSync(at('f')).mode & 0o7777).toBe(0o755);
    expect(lstatSync(at('l')).uid).toBe(0);
    await rpc.setAttributes({ path: at('f'), group: 'root', mode: '600' });
    expect(statSync(at('f'))).toMatchObject({ uid: 65_534, gid: 0 });
  });

  test('touch makes a file, and never replaces one', async () => {
    const begun = Date.now() - 1000;
    const { entry } = await rpc.setAttributes({ path: at('new'), touch: true, mode: '600' });
    expect(entry).toMatchObject({ size: 0n, mode: 0o600 });
    await rpc.setAttributes({ path: at('f'), modifiedTime: { seconds: 1n } });
    await rpc.setAttributes({ path: at('f'), touch: true });
    expect(statSync(at('f')).mtimeMs).toBeGreaterThan(begun);
    expect(readFileSync(at('f'), 'utf8')).toBe('content');
    expect(await refusal(rpc.setAttributes({ path: at('none/f'), touch: true }))).toBe('NotFound');
    expect(existsSync(at('none'))).toBe(false);
  });

  test.each([
    [{ mode: '4755' }, 'InvalidArgument'],
    [{ mode: '8' }, 'InvalidArgument'],
    [{ owner: 'nobody-of-this-name' }, 'InvalidArgument'],
    [{ group: 'nobody-of-this-name' }, 'InvalidArgument'],
    [{ owner: '4294967295' }, 'InvalidArgument'],
  ])('refuses %j', async (attributes, code) => {
    expect(await refusal(rpc.setAttributes({ path: at('f'), ...attributes }))).toBe(code);
    expect(await refusal(rpc.setAttributes({ path: at('none') }))).toBe('NotFound');
  });
});

describe('Link', () => {
  test('makes a link and its parents, and replaces a file or a link', async () => {
    const { entry } = await rpc.link({ target: '../f', path: at('new/l') });
    expect(entry).toMatchObject({ name: 'l', symlinkTarget: at('f') });
    expect(readlinkSync(at('new/l'))).toBe('../f');
    await rpc.link({ target: 'none', path: at('new/l') });
    await rpc.link({ target: 'none', path: at('f') });
    expect([readlinkSync(at('new/l')), readlinkSync(at('f'))]).toEqual(['none', 'none']);
    expect(await refusal(rpc.link({ target: 'f', path: at('new') }))).toBe('InvalidArgument');
    expect(await refusal(rpc.link({ target: '', path: at('x') }))).toBe('InvalidArgument');
  });
});

describe('Copy', () => {
  test('copies a tree with modes, links and times, and replaces a file', async () => {
    mkdirSync(at('d/e'), { recursive: true });
    writeFileSync(at('d/e/x'), 'x', { mode: 0o600 });
    symlinkSync('e/x', at('d/l'));
    const { entry } = await rpc.copy({ source: at('d'), destination: at('new/c') });
    expect(entry?.path).toBe(at('new/c'));
    expect(readFileSync(at('new/c/e/x'), 'utf8')).toBe('x');
    expect(statSync(at('new/c/e/x')).mtimeMs).toBe(statSync(at('d/e/x')).mtimeMs);
    expect([statSync(at('new/c/e/x')).mode & 0o777, readlinkSync(at('new/c/l'))]).toEqual([0o600, 'e/x']);
    await rpc.copy({ source: at('f'), destination: at('d/e/x') });
    expect(readFileSync(at('d/e/x'), 'utf8')).toBe('content');
    expect(readFileSync(at('f'), 'utf8')).toBe('content');
  });

  test('owners stay, and set-id bits do not', async () => {
    needs('root');
    chownSync(at('f'), 65_534, 7);
    chmodSync(at('f'), 0o4755);
    await rpc.copy({ source: at('f'), destination: at('g') });
    expect(statSync(at('g'))).toMatchObject({ uid: 65_534, gid: 7 });
    expect(statSync(at('g')).mode & 0o7777).toBe(0o755);
  });

  test('what cannot be copied leaves nothing behind', async () => {
    mkdirSync(at('d'));
    writeFileSync(at('d/x'), '');
    const refused = (source: string, destination: string) =>
      refusal(rpc.copy({ source: at(source), destination: at(destination) }));
    expect(await refused('none', 'x')).toBe('NotFound');
    expect(await refused('d', 'd/e')).toBe('InvalidArgument');
    expect(await refused('f', 'd')).toBe('InvalidArgument');
    expect(await refused('d', 'f')).toBe('InvalidArgument');
    expect(lstatSync(at('f')).isFile()).toBe(true);
    const { entries } = await rpc.listDir({ path: top, depth: 3 });
    expect(entries.map(({ path }) => path)).toEqual([at('d'), at('d/x'), at('f')]);
  });
});
