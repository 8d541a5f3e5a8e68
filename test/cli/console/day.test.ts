import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { ask, cookieOf } from '../../support/clients/by-host.ts';
import { type BrowserPage, Chromium } from '../../support/clients/chromium.ts';
import {
  EDITED,
  editText,
  SCREEN,
  screenShows,
  seriousFindings,
  showView,
  typeLine,
} from '../../support/clients/console-page.ts';
import { reasonAgainst } from '../../support/machine/machine.ts';
import { needs } from '../../support/machine/needs.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { buildPage, startConsole, type TestConsole } from '../../support/programs/console.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { envctl } from '../../support/programs/envctl.ts';
import { API_KEY, startGateway, type TestGateway } from '../../support/programs/gateway.ts';
import { until } from '../../support/until.ts';

/* A day of somebody who works in the console, from a sandbox's creation to its expiry: nothing is lost. */

const DOMAIN = 'sandboxes.test';
const FILES = 1000;
let daemon: TestDaemon;
let gateway: TestGateway;
let served: TestConsole;
let browser: Chromium | undefined;
let page: BrowserPage;
let home: string;
let id: string;
let token: string;

beforeAll(async () => {
  if (reasonAgainst('chromium') !== null) return;
  buildPage();
  daemon = await startDaemon();
  home = join(daemon.scratch, 'home');
  mkdirSync(home);
  const envVars = { HOME: home, PS1: '$ ' };
  const machine = { address: '127.0.0.1', port: daemon.port, init: { defaultUser: 'root', envVars } };
  const templates = join(daemon.scratch, 'templates');
  writeFileSync(templates, 'tpl-1 garden\n');
  gateway = await startGateway({
    args: [
      // The machine is there already; the guest is frozen and thawed.
      `--create-hook=printf '%s\\n' '${JSON.stringify(machine)}'`,
      ...['--hook=true', '--resume-hook=true', '--kill-hook=true'],
      ...[`--domain=${DOMAIN}`, `--template-file=${templates}`],
    ],
  });
  served = await startConsole('', [], { env: { ENVCTL_GATEWAY: gateway.url, ENVCTL_API_KEY: API_KEY } });
  browser = new Chromium({ hasWebgl: false });
  page = await browser.open(served.link);
});
afterAll(async () => {
  for (const each of [browser, served, gateway, daemon]) await each?.[Symbol.asyncDispose]();
});
beforeEach(() => {
  needs('chromium');
  needs('cgroup v2');
});

const stateOf = async () => (await gateway.call(`GET /sandboxes/${id}`)).body;
const reachIs = (reach: string) =>
  page.until(`it is ${reach}`, `document.querySelector('.reach')?.textContent === '${reach}'`);

async function goTo(path: string): Promise<void> {
  await page.until('a directory is open', `!!document.querySelector('[name=path]')?.value`);
  await page.fill('[name=path]', path);
  await page.press('Go');
  await page.until(
    `${path} is open and watched`,
    `document.querySelector('[name=path]').value === ${JSON.stringify(path)} && /live/.test(document.body.innerText)`,
  );
}

/** Shows the tab of a terminal by its number. */
async function showTab(index: number): Promise<void> {
  await showView(page, 'Terminals');
  const tab = `document.querySelectorAll('[role=tab]')[${index}]`;
  await page.until('there is the tab', `!!${tab}`);
  await page.evaluate(`${tab}.click()`);
  await page.until('it is shown', `${tab}.ariaSelected === 'true'`);
}

test('a sandbox is created with a template, a time and metadata, and chosen in the list', async () => {
  await page.press('Create');
  await page.until(
    'the template is offered',
    `document.querySelector('[name=template]')?.value === 'garden'`,
  );
  expect(await seriousFindings(page)).toEqual([]);
  await page.fill('dialog [name=metadata]', 'flower=rose\nno assignment');
  for (const name of ['pauses', 'private'])
    await page.evaluate(`document.querySelector('dialog [name=${name}]').click()`);
  await page.press('Create', 'dialog');
  // What is wrong is told, and nothing that was filled in is lost.
  const told = `document.querySelector('dialog [name=metadata]').validationMessage`;
  expect(await page.evaluate(told)).toBe("'no assignment' is not NAME=VALUE");
  await page.fill('dialog [name=metadata]', 'flower=rose\n');
  await page.press('Create', 'dialog');
  await page.until('it is chosen', `document.querySelectorAll('.row.selected').length === 1`);
  await page.shows('flower=rose');
  const { body } = await gateway.call('GET /sandboxes');
  expect(body).toHaveLength(1);
  expect(body[0]).toMatchObject({
    ...{ state: 'running', onExpiry: 'pause', metadata: { flower: 'rose' } },
    network: { allowPublicTraffic: false },
  });
  id = body[0].sandboxID;
  // An hour, and none of the other times that are offered.
  const seconds = (Date.parse(body[0].endAt) - Date.parse(body[0].startedAt)) / 1000;
  expect(Math.round(seconds / 1000)).toBe(4);
  token = (await stateOf()).envdAccessToken;
  await page.press('Open');
  await reachIs('reachable');
});

test('a terminal with an editor that is not left', async () => {
  await showView(page, 'Terminals');
  await page.press('New terminal');
  await page.until('there is a screen', `!!document.querySelector('.xterm-helper-textarea')`);
  await typeLine(page, `cd '${home}'; vi -u NONE -i NONE -N -n poem.txt`);
  await screenShows(page, '[New');
  await page.type('i');
  await screenShows(page, '-- INSERT --');
  await page.type('roses are red');
  await screenShows(page, 'roses are red');
});

test('1,000 files are uploaded', async () => {
  const local = join(scratch(), 'many');
  mkdirSync(local);
  for (let index = 0; index < FILES; index++) writeFileSync(join(local, `file-${index}`), `file ${index}\n`);
  await showView(page, 'Files');
  await goTo(home);
  await page.drop('.table', [local]);
  await until('all are there', () => namesIn('many').length === FILES);
  await page.until('the upload has ended', `!/Uploading/.test(document.body.innerText)`);
  expect(readFileSync(join(home, 'many/file-999'), 'utf8')).toBe('file 999\n');
});

const namesIn = (directory: string) => {
  try {
    return readdirSync(join(home, directory));
  } catch {
    return [];
  }
};

test('an edit that is not saved', async () => {
  await page.press('New file');
  await page.fill('dialog [name=text]', 'notes.txt');
  await page.press('Make it', 'dialog');
  await page.until('it is shown', `document.querySelector('.viewer h2')?.textContent === 'notes.txt'`);
  await page.press('Edit', '.viewer');
  await editText(page, 'to be kept\n');
});

test('a server of a private sandbox is opened by a preview link', async () => {
  await showView(page, 'Terminals');
  await page.press('New terminal');
  await page.until('there are two', `document.querySelectorAll('[role=tab]').length === 2`);
  await page.until(
    'it runs',
    `!/starting/.test(document.querySelector('[role=tab][aria-selected=true]').textContent)`,
  );
  const script = `require('http').createServer((_, answer) => answer.end('a rose')).listen(0, '127.0.0.1', function () { console.log('listens at', this.address().port) })`;
  writeFileSync(join(home, 'server.js'), script);
  await typeLine(page, `clear; '${process.execPath}' '${home}/server.js'`);
  const found = `/listens at (\\d+)/.exec(${SCREEN})?.[1]`;
  await page.until('it listens', `!!${found}`);
  const port = await page.evaluate(found);
  await showView(page, 'Events');
  await page.evaluate(`navigator.clipboard.writeText = async (text) => { window.copied = text }`);
  const copy = `document.querySelector('.ports [aria-label$="://${port}-${id}.${DOMAIN}:${gateway.port}/"]')`;
  await page.until('it is listed', `!!${copy}`);
  await page.evaluate(`${copy}.click()`);
  await page.until('a link is copied', `/svc-preview=/.test(window.copied)`);
  const { pathname, search, host } = new URL(await page.evaluate('window.copied'));
  expect((await ask(gateway.port, '/', { host })).status).toBe(403);
  const opened = await ask(gateway.port, pathname + search, { host });
  expect(opened.status).toBe(303);
  const shown = await ask(gateway.port, '/', { host, cookie: cookieOf(opened) });
  expect(shown).toMatchObject({ status: 200, text: 'a rose' });
});

test('a pause, a reload and a resume lose neither the terminals nor the edit', async () => {
  await page.press('Pause', '.lease');
  await reachIs('paused');
  // The page says so when it begins.
  await until('it is paused', async () => (await stateOf()).state === 'paused');
  await page.reload();
  await reachIs('paused');
  await showTab(0);
  await screenShows(page, 'roses are red');
  expect((await stateOf()).state).toBe('paused');
  await page.press('Resume', '.lease');
  await until('it runs', async () => (await stateOf()).state === 'running');
  await reachIs('reachable');
  await page.until(
    'it is attached',
    `!/starting|waiting/.test(document.querySelector('[role=tab]').textContent)`,
  );
  await page.evaluate(`document.querySelector('.xterm-helper-textarea').focus()`);
  await page.type(' and blue');
  await screenShows(page, 'roses are red and blue');
});

test('an upgrade of the daemon under the page', async () => {
  const { code, stderr } = await envctl(daemon.url, ['upgrade'], { env: { ENVCTL_TOKEN: token } });
  expect(code, stderr).toBe(0);
  await page.shows('connected again, nothing was lost');
  await page.evaluate(`document.querySelector('.xterm-helper-textarea').focus()`);
  await page.key('Escape');
  await page.until('the mode is left', `!${SCREEN}.includes('INSERT')`);
  await typeLine(page, ':wq');
  await until('it is written', () => namesIn('').includes('poem.txt'));
  await until('the text is there', () => textOf('poem.txt') === 'roses are red and blue\n');
});

const textOf = (name: string) => readFileSync(join(home, name), 'utf8');

test('when the time is up it is paused, and all is there when it is resumed', async () => {
  await gateway.call(`POST /sandboxes/${id}/timeout`, { timeout: 3 });
  await until('it is paused', async () => (await stateOf()).state === 'paused');
  await reachIs('paused');
  await page.press('New terminal');
  await page.press('Resume it', 'dialog');
  await page.until('there are three', `document.querySelectorAll('[role=tab]').length === 3`);
  await reachIs('reachable');
  await showTab(1);
  await screenShows(page, 'listens at');
  await showView(page, 'Files');
  await page.press('notes.txt', '.bar[role=status]');
  await page.until('the edit is there', `${EDITED} === 'to be kept\\n'`);
  await page.press('Save', '.viewer');
  await until('it is saved', () => textOf('notes.txt') === 'to be kept\n');
  expect(namesIn('many')).toHaveLength(FILES);
  expect(textOf('poem.txt')).toBe('roses are red and blue\n');
});

test('it is killed, the list is empty, and the browser has learned no token', async () => {
  await page.press('Kill', '.lease');
  await page.press('Kill it', 'dialog');
  await page.shows('The gateway has no sandbox for this key');
  for (const received of page.received) {
    expect(received).not.toContain(token);
    expect(received).not.toContain(API_KEY);
  }
  expect(page.problems).toEqual([]);
});
