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
let served: TestConsole;
let browser: Chromium | undefined;
let page: BrowserPage;

beforeAll(async () => {
  if (reasonAgainst('chromium') !== null) return;
  buildPage();
  // Hooks that do nothing: the guest is frozen and thawed, and any request would resume it.
  gateway = await startGateway({ args: ['--hook=true', '--resume-hook=true'] });
  daemons = await Promise.all([startDaemon(), startDaemon()]);
  for (const [index, daemon] of daemons.entries()) {
    await init(daemon, { accessToken: TOKEN, defaultUser: 'root', envVars: { PS1: '$ ' } });
    const more = { envdAccessToken: TOKEN, timeout: 300, onExpiry: 'pause' };
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

const stateOf = async (id: string) => (await gateway.call(`GET /sandboxes/${id}`)).body;

test('the sandboxes are listed with the time that they have left, and can be extended', async () => {
  for (const text of ['rose', 'violet', 'running']) await page.shows(text);
  // Another browser may have been waited for since they began.
  await page.until('the time left is told', `/\\b[0-4]:\\d\\d\\b/.test(document.body.innerText)`);
  expect(await seriousFindings(page)).toEqual([]);
  await picture(page, 'sandboxes');
  const before = Date.parse((await stateOf('rose')).endAt);
  await chooseRow(page, 'rose');
  await page.press('Extend to 1 h');
  await page.shows('59:5');
  expect(Date.parse((await stateOf('rose')).endAt)).toBeGreaterThan(before + 3_000_000);
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
  expect((await stateOf('rose')).state).toBe('paused');
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
  const { length } = await page.evaluate(`document.querySelector('.xterm-rows').innerText`);
  await page.until(
    'the output goes on',
    `document.querySelector('.xterm-rows').innerText.length !== ${length}`,
  );
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
  expect((await gateway.call('GET /sandboxes/violet')).status).toBe(404);
});

test('no token and no key has reached the browser', () => {
  expect(page.received.length).toBeGreaterThan(10);
  for (const received of page.received) {
    expect(received).not.toContain(TOKEN);
    expect(received).not.toContain(API_KEY);
  }
  expect(page.problems).toEqual([]);
});
