import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { type BrowserPage, Chromium } from '../../support/clients/chromium.ts';
import {
  chooseRow,
  EDITED,
  editText,
  picture,
  seriousFindings,
  showView,
} from '../../support/clients/console-page.ts';
import { reasonAgainst } from '../../support/machine/machine.ts';
import { needs } from '../../support/machine/needs.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { buildPage, startConsole, type TestConsole } from '../../support/programs/console.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { init } from '../../support/programs/sandbox.ts';
import { until } from '../../support/until.ts';

/* The files of a sandbox in the console, in a browser, against the real daemon. */

let daemon: TestDaemon;
let served: TestConsole;
let browser: Chromium | undefined;
let page: BrowserPage;
let home: string;

beforeAll(async () => {
  if (reasonAgainst('chromium') !== null) return;
  buildPage();
  daemon = await startDaemon();
  home = join(daemon.scratch, 'home');
  mkdirSync(join(home, 'garden/roses'), { recursive: true });
  writeFileSync(join(home, 'poem.txt'), 'roses are red\n');
  await init(daemon, { defaultUser: 'root' });
  served = await startConsole(daemon.url);
  browser = new Chromium();
  page = await browser.open(served.link);
  await showView(page, 'Files');
  await goTo(home);
});
afterAll(async () => {
  for (const each of [browser, served, daemon]) await each?.[Symbol.asyncDispose]();
});
beforeEach(() => needs('chromium'));

async function goTo(path: string): Promise<void> {
  await page.until('a directory is open', `!!document.querySelector('[name=path]')?.value`);
  await page.fill('[name=path]', path);
  await page.press('Go');
  await page.until(
    `${path} is open and watched`,
    `document.querySelector('[name=path]').value === ${JSON.stringify(path)} && /live/.test(document.body.innerText)`,
  );
}

/** Closes the file that is shown, once what is saved is known to be saved. */
async function closeViewer(): Promise<void> {
  await page.until('nothing is unsaved', `!document.querySelector('.unsaved, .viewer .editor')`);
  await page.press('Close', '.viewer');
  await page.until('it is closed', `!document.querySelector('.viewer')`);
}

const shown = (): Promise<string[]> =>
  page.evaluate(`[...document.querySelectorAll('.rows .row')].map((row) => row.children[0].textContent)`);

test('a directory is shown as a table, beside the tree that leads to it', async () => {
  await page.shows('poem.txt');
  expect(await shown()).toEqual(['garden/', 'poem.txt']);
  await page.until(
    'the tree leads there',
    `document.querySelector('.twig[aria-selected=true]')?.textContent.includes('home')`,
  );
  await chooseRow(page, 'garden');
  await page.evaluate(`document.querySelector('.table').focus()`);
  await page.key('Enter');
  await page.shows('roses/');
  await page.evaluate(`document.querySelector('.table').focus()`);
  await page.key('Backspace');
  await page.shows('poem.txt');
});

test('the tree leads to a directory among too many, and to one that is newer than the tree', async () => {
  for (let index = 0; index < 510; index += 1)
    mkdirSync(join(home, 'many', `d${index}`), { recursive: true });
  const leads = async (name: string): Promise<void> => {
    await goTo(join(home, 'many', name));
    await page.until(
      'the tree leads there',
      `document.querySelector('.twig[aria-selected=true]')?.textContent.endsWith(${JSON.stringify(name)})`,
    );
  };
  await leads('d99');
  mkdirSync(join(home, 'many', 'new'));
  await leads('new');
  await page.fill('[name=path]', join(home, 'many', 'none'));
  await page.press('Go');
  await page.shows('not found');
  expect(await page.evaluate(`document.querySelector('.tree').innerText.includes('none')`)).toBe(false);
  rmSync(join(home, 'many'), { recursive: true });
  await goTo(home);
});

test('changes appear by themselves', async () => {
  await page.until('it is watched', `/live/.test(document.body.innerText)`);
  writeFileSync(join(home, 'violets.txt'), 'violets are blue\n');
  await page.shows('violets.txt');
  rmSync(join(home, 'violets.txt'));
  await page.until('it has gone', `!document.body.innerText.includes('violets.txt')`);
});

test('files and directories are uploaded by drag and drop, with progress', async () => {
  const local = scratch();
  const content = Buffer.alloc(5_000_000, 'abcdefg');
  mkdirSync(join(local, 'tree/deep/empty'), { recursive: true });
  writeFileSync(join(local, 'big.bin'), content);
  writeFileSync(join(local, 'tree/deep/leaf'), 'leaf');
  await page.drop('.table', [join(local, 'big.bin'), join(local, 'tree')]);
  await page.shows('Uploaded 3 of 3 files');
  expect(readFileSync(join(home, 'big.bin')).equals(content)).toBe(true);
  expect(readFileSync(join(home, 'tree/deep/leaf'), 'utf8')).toBe('leaf');
  expect(existsSync(join(home, 'tree/deep/empty'))).toBe(true);
  await page.shows('tree/');
  // The picture has nothing of the machine that it is made on.
  if (process.env.ENVD_SCREENSHOTS) await page.evaluate(`document.querySelector('.knob').click()`);
  await picture(page, 'files');
  await page.press('Dismiss', '.upload');
  await page.until('the result has gone', `!document.querySelector('.upload')`);
});

test('a file that is dropped where nothing takes it leaves the page where it is', async () => {
  const local = scratch();
  writeFileSync(join(local, 'stray.txt'), 'stray');
  await page.evaluate('window.isHere = true');
  await page.drop('header', [join(local, 'stray.txt')]);
  await page.shows('poem.txt');
  expect(await page.evaluate('window.isHere')).toBe(true);
});

test('an upload that would replace something asks first', async () => {
  const local = scratch();
  writeFileSync(join(local, 'poem.txt'), 'another poem');
  await page.drop('.table', [join(local, 'poem.txt')]);
  await page.shows('Replace files?');
  await page.press('Cancel', 'dialog');
  expect(readFileSync(join(home, 'poem.txt'), 'utf8')).toBe('roses are red\n');
});

test('files are downloaded as they are, directories as an archive', async () => {
  const { downloads } = browser as Chromium;
  await chooseRow(page, 'big.bin');
  await page.press('Download');
  const saved = join(downloads, 'big.bin');
  await until(
    'it is saved',
    () => existsSync(saved) && readFileSync(saved).equals(readFileSync(join(home, 'big.bin'))),
  );
  await chooseRow(page, 'tree/');
  await page.press('Download');
  await until('the archive is saved', () =>
    readdirSync(downloads).some((name) => /^tree\.(zip|tar)$/.test(name)),
  );
});

test('text is shown and edited; what somebody else has written meanwhile is kept, unless the user says otherwise', async () => {
  const path = join(home, 'poem.txt');
  await chooseRow(page, 'poem.txt');
  await page.press('Open');
  await page.shows('roses are red');
  expect(await seriousFindings(page)).toEqual([]);
  await page.press('Edit');
  await editText(page, 'roses are white\n');
  await page.press('Save');
  await page.shows('is saved');
  expect(readFileSync(path, 'utf8')).toBe('roses are white\n');
  await page.press('Edit');
  await editText(page, 'mine\n');
  writeFileSync(path, 'theirs\n');
  await page.press('Save');
  await page.shows('Somebody else has changed the file');
  expect(await page.evaluate(`document.querySelector('.differences').innerText`)).toMatch(
    /^@@ line 1\n-theirs\n\+mine\n*$/,
  );
  expect(await seriousFindings(page)).toEqual([]);
  await page.press('Cancel', 'dialog');
  expect(readFileSync(path, 'utf8')).toBe('theirs\n');
  await page.press('Save');
  await page.press('Overwrite it with mine', 'dialog');
  await until('mine is there', () => readFileSync(path, 'utf8') === 'mine\n');
  await closeViewer();
});

test('the editor has numbers of lines, Tab indents, Ctrl+F searches, and Ctrl+S saves', async () => {
  writeFileSync(join(home, 'code.sh'), 'if true; then\necho roses\nfi\n');
  await chooseRow(page, 'code.sh');
  await page.press('Open');
  await page.press('Edit', '.viewer');
  await page.until('it has the text', `${EDITED}.includes('echo roses')`);
  const numbers = `[...document.querySelectorAll('.cm-lineNumbers .cm-gutterElement')].map(({ textContent }) => textContent)`;
  await page.until('lines have numbers', `['1', '2', '3', '4'].every((each) => ${numbers}.includes(each))`);
  expect(await seriousFindings(page)).toEqual([]);
  await picture(page, 'editor');
  await page.evaluate(`document.querySelector('.cm-content').focus()`);
  await page.key('ArrowDown');
  await page.key('Tab');
  await page.until('the line is indented', `${EDITED}.includes('\\n  echo roses')`);
  await page.key('KeyF', 'ctrl');
  await page.until('the search has the focus', `document.activeElement?.name === 'search'`);
  await page.key('Escape');
  await page.until('the text has the focus', `document.activeElement?.className.includes('cm-content')`);
  await page.key('KeyS', 'ctrl');
  await until('it is saved', () => readFileSync(join(home, 'code.sh'), 'utf8').includes('\n  echo roses'));
  await closeViewer();
  rmSync(join(home, 'code.sh'));
});

test('several entries are chosen by Ctrl and Shift, and deleted together; a menu has what can be done', async () => {
  for (const name of ['one', 'two', 'three', 'four']) writeFileSync(join(home, `heap-${name}`), name);
  await page.fill('[aria-label="Filter files"]', 'heap-');
  await page.until('they are there', `document.querySelectorAll('.rows .row').length === 4`);
  const click = (name: string, options: object) =>
    page.evaluate(
      `[...document.querySelectorAll('.rows .row')].find(({ textContent }) => textContent.includes(${JSON.stringify(name)})).dispatchEvent(new MouseEvent(${JSON.stringify('type' in options ? options.type : 'click')}, { bubbles: true, cancelable: true, clientX: 300, clientY: 300, ...${JSON.stringify(options)} }))`,
    );
  const chosen = `[...document.querySelectorAll('.row.selected')].map((row) => row.children[0].textContent)`;
  const are = (names: readonly string[]) =>
    page.until(
      `${names} are chosen`,
      `JSON.stringify(${chosen}) === ${JSON.stringify(JSON.stringify(names))}`,
    );
  await click('heap-four', {});
  await are(['heap-four']);
  await click('heap-three', { shiftKey: true });
  await are(['heap-four', 'heap-one', 'heap-three']);
  await click('heap-one', { ctrlKey: true });
  await are(['heap-four', 'heap-three']);
  await page.shows('2 selected');
  await page.evaluate(`document.querySelector('.table').focus()`);
  await page.key('ArrowDown', 'shift');
  await are(['heap-four', 'heap-one', 'heap-three', 'heap-two']);
  await click('heap-one', { ctrlKey: true });
  await are(['heap-four', 'heap-three', 'heap-two']);
  await click('heap-two', { type: 'contextmenu' });
  await page.until('the menu has the focus', `!!document.activeElement?.closest('.menu')`);
  expect(await seriousFindings(page)).toEqual([]);
  await page.press('Delete', '.menu');
  await page.shows('Delete 3 entries?');
  expect(await page.evaluate(`!!document.querySelector('.menu')`)).toBe(false);
  await page.press('Cancel', 'dialog');
  expect(existsSync(join(home, 'heap-two'))).toBe(true);
  await page.press('Delete');
  await page.press('Delete', 'dialog');
  await page.until('one is left', `document.querySelectorAll('.rows .row').length === 1`);
  expect(readdirSync(home).filter((name) => name.startsWith('heap-'))).toEqual(['heap-one']);
  await page.fill('[aria-label="Filter files"]', '');
});

test('line ends stay as they are, and a file that mixes them is not edited', async () => {
  writeFileSync(join(home, 'dos.txt'), 'one\r\ntwo\r\n');
  writeFileSync(join(home, 'mixed.txt'), 'one\r\ntwo\n');
  await chooseRow(page, 'dos.txt');
  await page.press('Open');
  await page.press('Edit', '.viewer');
  await editText(page, 'one\ntwo\nthree\n');
  await page.press('Save');
  await until('it is saved', () => readFileSync(join(home, 'dos.txt'), 'utf8') === 'one\r\ntwo\r\nthree\r\n');
  await closeViewer();
  await chooseRow(page, 'mixed.txt');
  await page.press('Open');
  await page.until('it is shown', `document.querySelector('.viewer pre')?.textContent.includes('two')`);
  expect(await page.evaluate(`document.querySelector('.viewer').innerText`)).not.toContain('Edit');
  await closeViewer();
});

test('a picture is shown, and a file that is neither is not', async () => {
  const pixel =
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
  writeFileSync(join(home, 'pixel.png'), Buffer.from(pixel, 'base64'));
  await chooseRow(page, 'pixel.png');
  await page.press('Open');
  await page.until('the picture is drawn', `document.querySelector('.viewer img')?.naturalWidth === 1`);
  await closeViewer();
  writeFileSync(join(home, 'noise'), Buffer.from([0, 255, 254, 0]));
  await chooseRow(page, 'noise');
  await page.press('Open');
  await page.shows('neither text nor a picture');
  await closeViewer();
});

test('text in Latin-1 is told as such', async () => {
  writeFileSync(join(home, 'latin'), Buffer.from('caf\u00e9\n', 'latin1'));
  await chooseRow(page, 'latin');
  await page.press('Open');
  await page.shows('This is not UTF-8. It is shown as Latin-1');
  expect(await page.evaluate(`document.querySelector('.viewer pre').textContent`)).toBe('caf\u00e9\n');
  expect(await page.evaluate(`document.querySelector('.viewer').innerText`)).not.toContain('Edit');
  await closeViewer();
});

test('a new file is opened, and never replaces another one', async () => {
  await page.press('New file');
  await page.fill('dialog [name=text]', 'poem.txt');
  await page.press('Make it', 'dialog');
  await page.shows('poem.txt exists already');
  await page.press('New file');
  await page.fill('dialog [name=text]', 'new.txt');
  await page.press('Make it', 'dialog');
  await page.until('it is shown', `document.querySelector('.viewer h2')?.textContent === 'new.txt'`);
  expect(readFileSync(join(home, 'new.txt'), 'utf8')).toBe('');
  await closeViewer();
});

test('one tap opens, and breadcrumbs lead back', async () => {
  const cell = `[...document.querySelectorAll('.rows .cell:first-child')].find(({ textContent }) => textContent === 'garden/')`;
  await page.until('it is there', `!!${cell}`);
  const { x, y } = await page.evaluate(
    `(({ left, top }) => ({ x: left + 20, y: top + 10 }))(${cell}.getBoundingClientRect())`,
  );
  const points = [{ x, y }];
  await page.send('Input.dispatchTouchEvent', { type: 'touchStart', touchPoints: points });
  await page.send('Input.dispatchTouchEvent', { type: 'touchEnd', touchPoints: [] });
  await page.shows('roses/');
  await page.press('home', '.crumbs');
  await page.shows('poem.txt');
});

test('entries are made, renamed and deleted, after questions', async () => {
  await page.press('New directory');
  await page.fill('dialog [name=text]', 'shed');
  await page.press('Make it', 'dialog');
  await page.shows('shed/');
  await chooseRow(page, 'shed');
  await page.press('Rename');
  await page.fill('dialog [name=text]', 'barn');
  await page.press('Rename', 'dialog');
  await page.shows('barn/');
  expect(existsSync(join(home, 'barn'))).toBe(true);
  await chooseRow(page, 'noise');
  await page.press('Rename');
  await page.fill('dialog [name=text]', 'poem.txt');
  await page.press('Rename', 'dialog');
  await page.shows('Replace it?');
  await page.press('Cancel', 'dialog');
  await chooseRow(page, 'barn');
  await page.press('Delete');
  await page.press('Cancel', 'dialog');
  expect(existsSync(join(home, 'barn'))).toBe(true);
  await page.press('Delete');
  await page.press('Delete', 'dialog');
  await page.until('it has gone', `!document.body.innerText.includes('barn/')`);
  expect(existsSync(join(home, 'barn'))).toBe(false);
});

test('10,000 files in a directory are listed, filtered and scrolled', async () => {
  const many = join(daemon.scratch, 'many');
  mkdirSync(many);
  for (let index = 0; index < 10_000; index++)
    writeFileSync(join(many, `file-${String(index).padStart(5, '0')}`), '');
  await goTo(many);
  await page.shows('10000 entries');
  expect(await page.evaluate(`document.querySelectorAll('.rows .row').length`)).toBeLessThan(100);
  await page.evaluate(`document.querySelector('.table').focus()`);
  await page.key('End');
  await page.until('the last one is shown', `document.body.innerText.includes('file-09999')`);
  await page.fill('[aria-label="Filter files"]', '0777');
  await page.until('those that match are left', `document.querySelectorAll('.rows .row').length === 11`);
  rmSync(many, { recursive: true });
  await page.until(
    'what happens to them is seen',
    `/^0 entries|does not exist/m.test(document.body.innerText)`,
  );
});

test('what cannot be read says why', async () => {
  const closed = join(daemon.scratch, 'closed');
  mkdirSync(closed);
  chmodSync(closed, 0o700);
  await page.fill('[name=path]', `${closed}/nothing`);
  await page.press('Go');
  await page.shows('path not found');
});

test('narrow', async () => {
  await goTo(home);
  await page.resize(390, 720);
  await page.shows('poem.txt');
  await picture(page, 'narrow');
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(390);
});

test('no script has failed, and no rule of the page was broken', () => {
  expect(page.problems).toEqual([]);
});
