import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { type BrowserPage, Chromium } from '../../support/clients/chromium.ts';
import {
  chooseRow,
  EDITED,
  editText,
  SCREEN,
  screenShows,
  showView,
  typeLine,
} from '../../support/clients/console-page.ts';
import { reasonAgainst } from '../../support/machine/machine.ts';
import { needs } from '../../support/machine/needs.ts';
import { buildPage, startConsole, type TestConsole } from '../../support/programs/console.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { init } from '../../support/programs/sandbox.ts';
import { until } from '../../support/until.ts';

/* What a reload, Back and another view leave as it was, in a browser, against the real daemon. */

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
  mkdirSync(join(home, 'garden'), { recursive: true });
  writeFileSync(join(home, 'poem.txt'), 'roses are red\n');
  writeFileSync(join(home, 'other.txt'), 'violets are blue\n');
  await init(daemon, { defaultUser: 'root', envVars: { HOME: home, PS1: '$ ' } });
  served = await startConsole(daemon.url);
  browser = new Chromium({ hasWebgl: false });
  page = await browser.open(served.link);
});
afterAll(async () => {
  for (const each of [browser, served, daemon]) await each?.[Symbol.asyncDispose]();
});
beforeEach(() => needs('chromium'));

const viewIs = (name: string, its = page) =>
  its.until(`${name} is shown`, `document.querySelector('main')?.ariaLabel === ${JSON.stringify(name)}`);
const directoryIs = (path: string, its = page) =>
  its.until(
    `${path} is open and watched`,
    `document.querySelector('[name=path]')?.value === ${JSON.stringify(path)} && /live/.test(document.body.innerText)`,
  );
const TABS = `[...document.querySelectorAll('[role=tab]')].map((tab) => tab.firstChild.textContent)`;

async function goTo(path: string): Promise<void> {
  await page.until('a directory is open', `!!document.querySelector('[name=path]')?.value`);
  await page.fill('[name=path]', path);
  await page.press('Go');
  await directoryIs(path);
}

async function openFile(name: string): Promise<void> {
  await chooseRow(page, name);
  await page.press('Open');
  await page.until(
    `${name} is shown`,
    `document.querySelector('.viewer h2')?.textContent === ${JSON.stringify(name)}`,
  );
}

test('the address says the view, the directory and the file: a reload, Back, Forward and a new window lead there', async () => {
  await page.shows('reachable');
  await showView(page, 'Files');
  await goTo(home);
  await goTo(join(home, 'garden'));
  await page.evaluate('history.back()');
  await directoryIs(home);
  await openFile('poem.txt');
  await page.reload();
  await directoryIs(home);
  await page.shows('roses are red');
  await showView(page, 'Processes');
  await page.evaluate('history.back()');
  await viewIs('Files');
  await page.shows('roses are red');
  await page.evaluate('history.back()');
  await page.until('the file is closed', `!document.querySelector('.viewer')`);
  await page.evaluate('history.go(2)');
  await viewIs('Processes');
  await showView(page, 'Files');
  const { secret } = await page.evaluate(
    `fetch('/links', { method: 'POST', headers: { 'x-console-session': sessionStorage.getItem('session') } }).then((answer) => answer.json())`,
  );
  const place = await page.evaluate('location.hash.slice(1)');
  const other = await (browser as Chromium).open(`${served.origin}/#${secret}${place}`);
  await directoryIs(home, other);
  expect(await other.evaluate('location.href')).not.toContain(secret);
});

test('the theme stays', async () => {
  await page.press('Theme: auto');
  await page.press('Theme: light');
  await page.reload();
  await page.press('Theme: dark');
  await page.reload();
  await page.until('it is auto again', `document.documentElement.dataset.theme === 'auto'`);
});

test('an edit that is not saved stays over another view, another file and a reload, which asks before', async () => {
  await showView(page, 'Files');
  await goTo(home);
  await openFile('poem.txt');
  await page.press('Edit', '.viewer');
  await editText(page, 'roses are not saved\n');
  await page.until('it is marked', `!!document.querySelector('.viewer h2.unsaved')`);
  await showView(page, 'Glance');
  await showView(page, 'Files');
  await page.until('it is there', `${EDITED} === 'roses are not saved\\n'`);
  await openFile('other.txt');
  await page.shows('Not saved yet:');
  expect(page.asked).toEqual([]);
  await page.reload();
  expect(page.asked).toEqual(['beforeunload']);
  await page.press('poem.txt', '.bar[role=status]');
  await page.until('it is there', `${EDITED} === 'roses are not saved\\n'`);
  await page.reload();
  await page.until('it is there', `${EDITED} === 'roses are not saved\\n'`);
  expect(readFileSync(join(home, 'poem.txt'), 'utf8')).toBe('roses are red\n');
  await page.press('Close', '.viewer');
  await page.shows('The edit is not saved');
  await page.press('Cancel', 'dialog');
  // What somebody else has written since the edit began is not overwritten without a question, also after a reload.
  writeFileSync(join(home, 'poem.txt'), 'theirs\n');
  await page.press('Save', '.viewer');
  await page.shows('Somebody else has changed the file');
  await page.press('Overwrite it with mine', 'dialog');
  await until('it is saved', () => readFileSync(join(home, 'poem.txt'), 'utf8') === 'roses are not saved\n');
  await page.until('nothing is marked', `!document.querySelector('.unsaved')`);
  page.asked.length = 0;
  await page.reload();
  expect(page.asked).toEqual([]);
});

test('an edit that is discarded does not come back', async () => {
  await showView(page, 'Files');
  await openFile('other.txt');
  await page.press('Edit', '.viewer');
  await editText(page, 'violets are\n');
  await page.press('Discard', '.viewer');
  await page.press('Cancel', 'dialog');
  expect(await page.evaluate(EDITED)).toBe('violets are\n');
  await page.press('Discard', '.viewer');
  await page.press('Discard it', 'dialog');
  await page.shows('violets are blue');
  await page.press('Edit', '.viewer');
  await page.until('it is that of the file', `${EDITED} === 'violets are blue\\n'`);
  await page.press('Discard', '.viewer');
  await page.press('Close', '.viewer');
});

test('terminals are attached again at their byte, with their screens, in their order', async () => {
  await showView(page, 'Terminals');
  await page.press('New terminal');
  await page.until('there is a screen', `!!document.querySelector('.xterm-helper-textarea')`);
  await typeLine(page, `printf '\\033]0;the first\\007'; echo be''fore`);
  await page.until('it has its title', `${TABS}[0] === 'the first'`);
  await screenShows(page, 'before');
  await page.press('New terminal');
  await page.until('there are two', `${TABS}.length === 2`);
  await page.until('it runs', `document.querySelectorAll('[role=tab]')[1].textContent === 'shell×'`);
  await typeLine(
    page,
    `printf '\\033]0;the second\\007'; for i in $(seq 12); do echo line $i; sleep 0.3; done; echo fin''ished`,
  );
  await screenShows(page, 'line 4');
  await page.reload();
  await screenShows(page, 'finished');
  expect(await page.evaluate(TABS)).toEqual(['the first', 'the second']);
  const lines: string[] = await page.evaluate(`${SCREEN}.match(/^line \\d+/gm)`);
  expect(lines).toEqual(Array.from({ length: 12 }, (_, index) => `line ${index + 1}`));
  expect(await page.evaluate(SCREEN)).not.toContain('connected again');
  await typeLine(page, 'clear; echo still $((6 * 7))');
  await screenShows(page, 'still 42');
  await page.evaluate(`document.querySelector('[role=tab]').click()`);
  await screenShows(page, 'before');
  await typeLine(page, 'echo goes on $((5 * 5)); stty size');
  await screenShows(page, 'goes on 25');
});

test('a shell that has ended is started again by Enter, also after a reload', async () => {
  await typeLine(page, 'exit');
  await page.shows('Enter starts it again');
  await page.until(
    'it has ended',
    `/ended/.test(document.querySelector('[role=tab][aria-selected=true]').textContent)`,
  );
  await page.reload();
  await page.shows('Enter starts it again');
  await typeLine(page, '');
  await page.until(
    'it runs',
    `!/ended|starting/.test(document.querySelector('[role=tab][aria-selected=true]').textContent)`,
  );
  await typeLine(page, 'clear; echo anew $((7 * 7))');
  await screenShows(page, 'anew 49');
});

test('a click on × closes a tab after a question, in which Cancel has the focus', async () => {
  await page.evaluate(`document.querySelector('[role=tab] .close').click()`);
  await page.until('Cancel has the focus', `document.activeElement?.textContent === 'Cancel'`);
  const buttons = await page.evaluate(
    `[...document.querySelectorAll('dialog button')].map(({ textContent, className }) => [textContent, className])`,
  );
  expect(buttons).toEqual([
    ['Cancel', ''],
    ['Leave it running', 'primary'],
    ['Kill it', 'danger'],
  ]);
  await page.press('Kill it', 'dialog');
  await page.until('there is one tab', `${TABS}.length === 1`);
  await page.reload();
  await page.until('there is one tab', `${TABS}.length === 1`);
});

test('tabs are renamed and moved by keys, which a reload keeps', async () => {
  await page.press('New terminal');
  await page.until('there are two', `${TABS}.length === 2`);
  await page.until(
    'both run',
    `!/starting|waiting/.test([...document.querySelectorAll('[role=tab]')].map(({ textContent }) => textContent).join())`,
  );
  const focus = (index: number) => page.evaluate(`document.querySelectorAll('[role=tab]')[${index}].focus()`);
  await focus(1);
  await page.key('F2');
  await page.fill('dialog [name=name]', 'the garden');
  await page.press('Rename', 'dialog');
  await page.until('it has the name', `${TABS}[1] === 'the garden'`);
  await focus(1);
  await page.key('ArrowLeft', 'shift');
  await page.until('it is the first', `${TABS}[0] === 'the garden'`);
  await page.reload();
  await page.until('there are two', `${TABS}.length === 2`);
  expect((await page.evaluate(TABS))[0]).toBe('the garden');
  await focus(0);
  await page.key('Delete');
  await page.press('Kill it', 'dialog');
  await page.until('there is one', `${TABS}.length === 1`);
});

test('wide characters take two cells, as programs count them', async () => {
  await screenShows(page, 'still 42');
  // The emoji of Unicode 11 are wide: a cursor behind one is in the third column.
  await typeLine(
    page,
    `clear; printf '\\U1F9A0\\033[6n'; read -rsd R answer; echo " at $(echo $answer | cut -d';' -f2)"`,
  );
  await screenShows(page, 'at 3');
});

test('tables sort by a click on their headers', async () => {
  await showView(page, 'Files');
  await goTo(home);
  writeFileSync(join(home, 'large.txt'), 'x'.repeat(5000));
  await page.shows('large.txt');
  const names = `[...document.querySelectorAll('.rows .row')].map((row) => row.children[0].textContent)`;
  const sort = (title: string) => page.press(title, '.table');
  const before = await page.evaluate(names);
  await sort('Size');
  await page.until('the largest one is first', `${names}[0] === 'large.txt'`);
  expect(await page.evaluate(`document.querySelector('[aria-sort=descending]').textContent`)).toBe('Size');
  await sort('Size');
  await page.until('the largest one is last', `${names}.at(-1) === 'large.txt'`);
  await sort('Size');
  await page.until(
    'they are as before',
    `JSON.stringify(${names}) === ${JSON.stringify(JSON.stringify(before))}`,
  );
  await showView(page, 'Processes');
  await page.until('there are rows', `document.querySelectorAll('.rows .row').length > 1`);
  for (const title of ['CPU', 'Memory', 'Age']) {
    await sort(title);
    await page.until(
      'it is sorted',
      `document.querySelector('[aria-sort=descending]')?.textContent === '${title}'`,
    );
  }
  await sort('PID');
  const pids = `[...document.querySelectorAll('.rows .row')].map((row) => Number(row.children[0].textContent))`;
  await page.until(
    'the greatest number is first',
    `${pids}.every((pid, index, all) => index === 0 || pid < all[index - 1])`,
  );
});

test('a terminal that is kept but not shown is beside the page, and gets no keys, at 390 pixels, too', async () => {
  await page.resize(390, 720);
  await page.reload();
  await viewIs('Processes');
  await page.until('it is there', `!!document.querySelector('body > .screen .xterm-screen')`);
  expect(
    await page.evaluate(
      `(({ inert }, { right }) => ({ inert, isOut: right <= 0 }))(...[document.querySelector('body > .screen')].flatMap((it) => [it, it.getBoundingClientRect()]))`,
    ),
  ).toEqual({ inert: true, isOut: true });
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(390);
  await page.resize(1280, 720);
});

test('no script has failed', () => {
  expect(page.problems).toEqual([]);
});
