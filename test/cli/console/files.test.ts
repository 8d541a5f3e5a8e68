import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { type BrowserPage, Chromium } from '../../support/clients/chromium.ts';
import { chooseRow, picture, seriousFindings, showView } from '../../support/clients/console-page.ts';
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
  await page.fill('.editor', 'roses are white\n');
  await page.press('Save');
  await page.shows('is saved');
  expect(readFileSync(path, 'utf8')).toBe('roses are white\n');
  await page.press('Edit');
  await page.fill('.editor', 'mine\n');
  writeFileSync(path, 'theirs\n');
  await page.press('Save');
  await page.shows('Somebody else has changed the file');
  await page.press('Cancel', 'dialog');
  expect(readFileSync(path, 'utf8')).toBe('theirs\n');
  await page.press('Save');
  await page.press('Overwrite it with mine', 'dialog');
  await until('mine is there', () => readFileSync(path, 'utf8') === 'mine\n');
  await page.press('Close', '.viewer');
});

test('line ends stay as they are, and a file that mixes them is not edited', async () => {
  writeFileSync(join(home, 'dos.txt'), 'one\r\ntwo\r\n');
  writeFileSync(join(home, 'mixed.txt'), 'one\r\ntwo\n');
  await chooseRow(page, 'dos.txt');
  await page.press('Open');
  await page.press('Edit', '.viewer');
  await page.fill('.editor', 'one\ntwo\nthree\n');
  await page.press('Save');
  await until('it is saved', () => readFileSync(join(home, 'dos.txt'), 'utf8') === 'one\r\ntwo\r\nthree\r\n');
  await page.press('Close', '.viewer');
  await chooseRow(page, 'mixed.txt');
  await page.press('Open');
  await page.until('it is shown', `document.querySelector('.viewer pre')?.textContent.includes('two')`);
  expect(await page.evaluate(`document.querySelector('.viewer').innerText`)).not.toContain('Edit');
  await page.press('Close', '.viewer');
});

test('a picture is shown, and a file that is neither is not', async () => {
  const pixel =
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
  writeFileSync(join(home, 'pixel.png'), Buffer.from(pixel, 'base64'));
  await chooseRow(page, 'pixel.png');
  await page.press('Open');
  await page.until('the picture is drawn', `document.querySelector('.viewer img')?.naturalWidth === 1`);
  await page.press('Close', '.viewer');
  writeFileSync(join(home, 'noise'), Buffer.from([0, 255, 254, 0]));
  await chooseRow(page, 'noise');
  await page.press('Open');
  await page.shows('neither text nor a picture');
  await page.press('Close', '.viewer');
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
