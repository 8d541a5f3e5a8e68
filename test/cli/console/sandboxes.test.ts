import { rmSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { type BrowserPage, Chromium } from '../../support/clients/chromium.ts';
import {
  chooseRow,
  picture,
  screenShows,
  seriousFindings,
  showView,
  typeLine,
} from '../../support/clients/console-page.ts';
import { reasonAgainst } from '../../support/machine/machine.ts';
import { needs } from '../../support/machine/needs.ts';
import { buildPage, startConsole, type TestConsole } from '../../support/programs/console.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { API_KEY, startGateway, type TestGateway } from '../../support/programs/gateway.ts';
import { init } from '../../support/programs/sandbox.ts';
import { until } from '../../support/until.ts';

/* The sandboxes of a gateway in the console, in a browser, against the real gateway and daemons. */

const TOKEN = 'token-of-the-sandbox';
let daemons: readonly TestDaemon[] = [];
let gateway: TestGateway;
/** A pause takes as long as there is this file. */
let slow: string;
let served: TestConsole;
let browser: Chromium | undefined;
let page: BrowserPage;

beforeAll(async () => {
  if (reasonAgainst('chromium') !== null) return;
  buildPage();
  // Hooks that do nothing: the guest is frozen and thawed, and any request would resume it.
  daemons = await Promise.all([startDaemon(), startDaemon()]);
  slow = join(daemons[0]?.scratch ?? '', 'slow');
  const hook = `--hook=while test -e '${slow}'; do sleep 0.1; done`;
  gateway = await startGateway({ args: [hook, '--resume-hook=true'] });
  for (const [index, daemon] of daemons.entries()) {
    await init(daemon, { accessToken: TOKEN, defaultUser: 'root', envVars: { PS1: '$ ' } });
    const metadata = { garden: ['red', 'blue'][index] };
    const more = { envdAccessToken: TOKEN, timeout: 3000, onExpiry: 'pause', metadata };
    await gateway.register(['rose', 'violet'][index] ?? '', daemon.port, more);
  }
  served = await startConsole('', [], { env: { ENVCTL_GATEWAY: gateway.url, ENVCTL_API_KEY: API_KEY } });
  browser = new Chromium({ hasWebgl: false });
  page = await browser.open(served.link);
});
afterAll(async () => {
  for (const each of [browser, served, gateway, ...daemons]) await each?.[Symbol.asyncDispose]();
});
beforeEach(() => needs('chromium'));

/** The time left in the head. */
const LEFT = `document.querySelector('.left')?.textContent`;

const stateOf = async (id: string) => (await gateway.call(`GET /sandboxes/${id}`)).body;

/** The page says that a sandbox is paused when it has asked for that, which is before the gateway has done it. */
const untilPaused = (id: string) => until('it is paused', async () => (await stateOf(id)).state === 'paused');

test('the sandboxes are listed with the time that they have left, and can be extended', async () => {
  for (const text of ['rose', 'violet', 'running']) await page.shows(text);
  // Another browser may have been waited for since they began.
  await page.until('the time left is told', `/\\b[0-5]\\d:\\d\\d\\b/.test(document.body.innerText)`);
  expect(await seriousFindings(page)).toEqual([]);
  await picture(page, 'sandboxes');
  await page.fill('[aria-label="Filter sandboxes"]', 'garden=RED');
  await page.until('one is left', `document.querySelectorAll('.rows .row').length === 1`);
  const before = Date.parse((await stateOf('rose')).endAt);
  await chooseRow(page, 'rose');
  await page.press('+1 h');
  await page.shows('rose was extended by 60 minutes, and has 1:');
  expect(Date.parse((await stateOf('rose')).endAt)).toBeGreaterThan(before + 3_590_000);
});

test('several are chosen, and extended together', async () => {
  await page.fill('[aria-label="Filter sandboxes"]', '');
  await page.until('both are there', `document.querySelectorAll('.rows .row').length === 2`);
  await chooseRow(page, 'rose');
  const before = await Promise.all(['rose', 'violet'].map(stateOf));
  await page.evaluate(
    `[...document.querySelectorAll('.rows .row')].find(({ textContent }) => textContent.includes('violet')).dispatchEvent(new MouseEvent('click', { bubbles: true, ctrlKey: true }))`,
  );
  await page.until('both are chosen', `document.querySelectorAll('.row.selected').length === 2`);
  expect(
    await page.evaluate(
      `[...document.querySelectorAll('button')].find(({ textContent }) => textContent === 'Open').disabled`,
    ),
  ).toBe(true);
  await page.press('+10 min');
  const ends = (states: readonly { readonly endAt: string }[]) =>
    states.map(({ endAt }) => Date.parse(endAt));
  await until('both have more time', async () => {
    const now = ends(await Promise.all(['rose', 'violet'].map(stateOf)));
    return now.every((end, index) => end > (ends(before)[index] ?? 0) + 590_000);
  });
});

test('each has its console, and its terminal goes on after a pause and a resume', async () => {
  needs('cgroup v2');
  await chooseRow(page, 'rose');
  await page.press('Open');
  await page.shows('reachable');
  await showView(page, 'Terminals');
  await page.press('New terminal');
  await page.until('there is a screen', `!!document.querySelector('.xterm-helper-textarea')`);
  await typeLine(page, 'for i in $(seq 1000); do echo line $i; sleep 0.2; done');
  await screenShows(page, 'line 3');
  await page.press('All sandboxes');
  await chooseRow(page, 'rose');
  await page.press('Pause');
  await page.shows('paused');
  await untilPaused('rose');
  // Nothing of the page wakes it.
  await page.press('Open');
  await page.until('it is told', `document.querySelector('.reach').textContent === 'paused'`);
  expect((await stateOf('rose')).state).toBe('paused');
  // Nor does one that is loaded anew, in any view.
  for (const view of ['Processes', 'Files', 'Terminals']) {
    await showView(page, view);
    await page.reload();
    await page.until('it is told', `document.querySelector('.reach')?.textContent === 'paused'`);
    await page.until(`${view} is shown`, `document.querySelector('main').ariaLabel === '${view}'`);
    if (view === 'Files') await page.shows('the sandbox is paused');
  }
  await screenShows(page, 'line 3');
  expect((await stateOf('rose')).state).toBe('paused');
  await page.press('All sandboxes');
  await chooseRow(page, 'rose');
  await page.press('Resume');
  await until('it runs', async () => (await stateOf('rose')).state === 'running');
  await page.press('Open');
  await page.shows('reachable');
  await page.until('there is a screen', `!!document.querySelector('.xterm-rows')`);
  const { length } = await page.evaluate(`document.querySelector('.xterm-rows').innerText`);
  await page.until(
    'the output goes on',
    `document.querySelector('.xterm-rows').innerText.length !== ${length}`,
  );
  await page.press('All sandboxes');
});

test('the bar of a sandbox tells the time left on each view, pauses and resumes with the time that was left', async () => {
  needs('cgroup v2');
  await page.fill('[aria-label="Filter sandboxes"]', 'garden=RED');
  await chooseRow(page, 'rose');
  await page.press('Open');
  await page.shows('reachable');
  for (const view of ['Terminals', 'Files', 'Glance']) {
    await showView(page, view);
    await page.until('the time is told', `/^1:\\d\\d:\\d\\d left$/.test(${LEFT})`);
  }
  const shown = await page.evaluate(LEFT);
  await page.until('it counts down', `${LEFT} !== ${JSON.stringify(shown)}`);
  await page.press('+10 min', '.lease');
  await page.shows('rose was extended by 10 minutes, and has ');
  writeFileSync(slow, '');
  await page.press('Pause', '.lease');
  // The time is up for the gateway then, which the page must not take for the reason.
  await until('it is being paused', async () => (await stateOf('rose')).endAt < new Date().toISOString());
  const lists = () => page.received.filter((text) => /gateway.sandboxes.limit/.test(text)).length;
  const before = lists();
  await until('the list was looked at', () => lists() > before + 1);
  rmSync(slow);
  await page.until('it is paused', `document.querySelector('.reach').textContent === 'paused'`);
  await page.until('no time runs', `!document.querySelector('.left')`);
  await untilPaused('rose');
  // The page knows it, too, by the list.
  const resume = `[...document.querySelectorAll('.lease button')].find(({ textContent }) => textContent === 'Resume')`;
  await page.until('it can be resumed', `${resume}.disabled === false`);
  expect(await page.evaluate('document.body.innerText')).not.toContain('The time of rose was up');
  // What was known is told further.
  await page.until(
    'its host name is told',
    `document.querySelector('.facts').innerText.includes(${JSON.stringify(hostname())})`,
  );
  // A new terminal asks first.
  await showView(page, 'Terminals');
  await page.press('New terminal');
  await page.shows('It goes on for the time that it had left');
  const tab = `document.querySelector('[role=tab]').innerText`;
  await page.until('the tab says that it waits', `/waiting/.test(${tab})`);
  expect((await stateOf('rose')).state).toBe('paused');
  await page.press('Resume it', 'dialog');
  await until('it runs', async () => (await stateOf('rose')).state === 'running');
  await page.shows('rose runs again, and has ');
  const left = Date.parse((await stateOf('rose')).endAt) - Date.now();
  // Not the default of the gateway, which is 5 minutes.
  expect(left).toBeGreaterThan(3_600_000);
  await page.until('there is another tab', `document.querySelectorAll('[role=tab]').length === 2`);
  await page.shows('reachable');
  expect(await seriousFindings(page)).toEqual([]);
  await page.press('All sandboxes');
  // The place in the list is kept.
  await page.until('rose is chosen', `document.querySelector('.row.selected')?.textContent.includes('rose')`);
  expect(await page.evaluate(`document.querySelectorAll('.rows .row').length`)).toBe(1);
  await page.fill('[aria-label="Filter sandboxes"]', '');
  await page.shows('violet');
});

test('the page warns before the end, and says that a sandbox has expired', async () => {
  needs('cgroup v2');
  await gateway.register('lily', daemons[1]?.port ?? 0, {
    ...{ envdAccessToken: TOKEN, timeout: 600, onExpiry: 'remove' },
  });
  await chooseRow(page, 'lily');
  await page.press('Open');
  await page.shows('reachable');
  await gateway.call('POST /sandboxes/lily/timeout', { timeout: 55 });
  await page.until(
    'it warns',
    `/lily ends in 0:[1-5]\\d, unless you extend it/.test(document.body.innerText)`,
  );
  await showView(page, 'Terminals');
  await page.press('New terminal');
  await page.until('it runs', `!!document.querySelector('[role=tab]:not(:has(.muted))')`);
  await gateway.call('POST /sandboxes/lily/timeout', { timeout: 20 });
  await page.until('the new end is known', `/^0:([01]\\d|20) left$/.test(${LEFT})`);
  await page.until('it is told', `document.querySelector('.reach').textContent === 'expired'`);
  await page.shows('lily has expired.');
  await page.until('it is told', `document.querySelector('.note').innerText === 'the sandbox has expired'`);
  await page.press('All sandboxes');
});

test('one is killed after a question', async () => {
  await chooseRow(page, 'violet');
  await page.press('Kill');
  await page.press('Cancel', 'dialog');
  expect((await stateOf('violet')).state).toBe('running');
  await page.press('Kill');
  await page.press('Kill it', 'dialog');
  await page.until('it has gone', `!document.body.innerText.includes('violet')`);
  await until('it is killed', async () => (await gateway.call('GET /sandboxes/violet')).status === 404);
});

test('no token and no key has reached the browser', () => {
  expect(page.received.length).toBeGreaterThan(10);
  for (const received of page.received) {
    expect(received).not.toContain(TOKEN);
    expect(received).not.toContain(API_KEY);
  }
  expect(page.problems).toEqual([]);
});
