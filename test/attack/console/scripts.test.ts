import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { type BrowserPage, Chromium } from '../../support/clients/chromium.ts';
import { chooseRow, screenShows, showView } from '../../support/clients/console-page.ts';
import { reasonAgainst } from '../../support/machine/machine.ts';
import { needs } from '../../support/machine/needs.ts';
import { buildPage, startConsole, type TestConsole } from '../../support/programs/console.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { envctl } from '../../support/programs/envctl.ts';
import { owned } from '../../support/programs/owned.ts';
import { init } from '../../support/programs/sandbox.ts';
import { startStubDaemon } from '../../support/servers/stub-daemon.ts';

/* Names, output and contents by which a hostile guest tries to run a script in the page of the console. */

/** Each would set `window.hacked`, or navigate, if it ran. */
const SCRIPTS = [
  '<script>window.hacked=1</script>',
  '<img src=x onerror=window.hacked=1>',
  '<svg onload=window.hacked=1>',
  '"><script>window.hacked=1</script>',
  "'><img src=x onerror=window.hacked=1>",
  '" onmouseover="window.hacked=1" x="',
  "' onfocus='window.hacked=1' autofocus='",
  'javascript:window.hacked=1',
  '<a href="javascript:window.hacked=1">x<a>',
  '<iframe srcdoc="<script>parent.hacked=1<script>">',
  '</title><script>window.hacked=1</script>',
  '</textarea><script>window.hacked=1</script>',
  '</style><script>window.hacked=1</script>',
  '--><script>window.hacked=1</script>',
  '{{constructor.constructor("window.hacked=1")()}}',
  '$'.concat('{window.hacked=1}'),
  '\\u003cscript\\u003ewindow.hacked=1\\u003c',
  '&lt;script&gt;window.hacked=1&lt;',
  '<details open ontoggle=window.hacked=1>',
  '<math><mi xlink:href="javascript:window.hacked=1">',
  '<base href="http:evil.example">',
  '<meta http-equiv=refresh content="0;url=javascript:window.hacked=1">',
  '<form action=javascript:window.hacked=1><input type=submit autofocus>',
  '<style>@import "http:evil.example";</style>',
  '<link rel=stylesheet href=http:evil.example>',
  '__proto__',
  'constructor',
  '\u202e<script>window.hacked=1</script>',
  '\x1b]0;<script>window.hacked=1</script>\x07',
  '<input autofocus onfocus=window.hacked=1>',
  '<video><source onerror=window.hacked=1>',
  '<body onload=window.hacked=1>',
];
/** In output, beside the others: links, and sequences that terminals have acted upon. */
const SEQUENCES = [
  '\x1b]8;;javascript:window.hacked=1\x07link\x1b]8;;\x07',
  '\x1b]8;;data:text/html,<script>window.hacked=1</script>\x07link\x1b]8;;\x07',
  '\x1b]52;c;d2luZG93LmhhY2tlZD0x\x07',
  '\x1b]1337;File=inline=1:PHNjcmlwdD53aW5kb3cuaGFja2VkPTE8L3NjcmlwdD4=\x07',
  '\x1b]2;<img src=x onerror=window.hacked=1>\x07',
  '\x1bP$q"p\x1b\\\x1b[c\x1b[>c\x1b[6n\x1b[?1000h',
];

let daemon: TestDaemon;
let served: TestConsole;
let browser: Chromium | undefined;
let page: BrowserPage;
let directory: string;

beforeAll(async () => {
  if (reasonAgainst('chromium') !== null) return;
  buildPage();
  daemon = await startDaemon();
  await init(daemon, { defaultUser: 'root' });
  directory = join(daemon.scratch, 'hostile');
  mkdirSync(directory);
  for (const name of SCRIPTS) writeFileSync(join(directory, name.replaceAll('/', '')), SCRIPTS.join('\n'));
  for (const name of ['page.html', 'picture.svg', 'false.png'])
    writeFileSync(join(directory, name), `<svg xmlns="http://www.w3.org/2000/svg">${SCRIPTS.join('')}</svg>`);
  served = await startConsole(daemon.url);
  browser = new Chromium({ hasWebgl: false });
  page = await browser.open(served.link);
  await page.shows('reachable');
});
afterAll(async () => {
  for (const each of [browser, served, daemon]) await each?.[Symbol.asyncDispose]();
});
beforeEach(() => needs('chromium'));

/** Expects that nothing ran, nothing was made of the texts, and the page is where it was. */
async function expectNothing(shown: BrowserPage, origin: string): Promise<void> {
  expect(await shown.evaluate('window.hacked')).toBeUndefined();
  expect(await shown.evaluate('location.origin + location.pathname + location.search')).toBe(`${origin}/`);
  const made = `document.querySelectorAll('script:not([src="/main.js"]), iframe, base, meta[http-equiv], [onerror], [onload], [onfocus], object, embed').length`;
  expect(await shown.evaluate(made)).toBe(0);
  // A rule that had to stop something would be told here: it is the second wall, and not the first.
  expect(shown.problems).toEqual([]);
}

test('the search for what ran finds something', async () => {
  const other = await (browser as Chromium).open('about:blank#x');
  await other.evaluate(`document.body.innerHTML = '<img src=x onerror=window.hacked=1>'`);
  await other.until('it ran', 'window.hacked === 1');
});

test(`${SCRIPTS.length} names of files, and their contents`, async () => {
  await showView(page, 'Files');
  await page.until('a directory is open', `!!document.querySelector('[name=path]')?.value`);
  await page.fill('[name=path]', directory);
  await page.press('Go');
  await page.until('all are listed', `document.body.innerText.includes('${SCRIPTS.length + 3} entries')`);
  await expectNothing(page, served.origin);
  for (const name of ['page.html', 'picture.svg', 'false.png', '<script>', 'onmouseover']) {
    await chooseRow(page, name);
    await page.press('Open');
    await page.until('it is shown', `!!document.querySelector('.viewer :is(pre, img)')`);
    await expectNothing(page, served.origin);
    await page.press('Close', '.viewer');
  }
  await chooseRow(page, '<svg');
  await page.press('Delete');
  await page.shows('Delete <svg');
  await expectNothing(page, served.origin);
  await page.press('Cancel', 'dialog');
});

test('names of processes, tags, and what they write', async () => {
  for (const text of SCRIPTS.slice(0, 6))
    await envctl(daemon.url, ['run', '--detach', '--tag', text, 'sh', '-c', 'sleep 1000', text]);
  const output = [...SCRIPTS, ...SEQUENCES].join('\n');
  writeFileSync(join(daemon.scratch, 'output'), `${output}\nthe end`);
  await envctl(daemon.url, [
    'run',
    '--detach',
    '--tag',
    'writer',
    'sh',
    '-c',
    `sleep 1; cat ${daemon.scratch}/output; sleep 1000`,
  ]);
  await showView(page, 'Processes');
  await chooseRow(page, 'onerror');
  await expectNothing(page, served.origin);
  await page.press('Signal');
  await expectNothing(page, served.origin);
  await page.press('Cancel', 'dialog');
  await chooseRow(page, 'writer');
  await page.press('Output');
  await screenShows(page, 'the end');
  await expectNothing(page, served.origin);
  await showView(page, 'Events');
  await page.shows('was started');
  await expectNothing(page, served.origin);
});

test('a daemon that is hostile itself', async () => {
  for (const text of SCRIPTS.slice(0, 6)) {
    const stub = await startStubDaemon({ tree: { '/': null }, hostileNames: SCRIPTS, text });
    const console = await owned(startConsole(stub.url));
    const its = await (browser as Chromium).open(console.link);
    await its.shows('reachable');
    await showView(its, 'Processes');
    await its.until('there is a process', `document.querySelectorAll('.rows .row').length > 0`);
    await showView(its, 'Files');
    await its.until('a directory is open', `!!document.querySelector('[name=path]')?.value`);
    await its.fill('[name=path]', '/list');
    await its.press('Go');
    await its.until('names are listed', `document.querySelectorAll('.rows .row').length > 10`);
    await expectNothing(its, console.origin);
    await stub[Symbol.asyncDispose]();
  }
});

test('a foreign page gets nothing of the console, and cannot frame it', async () => {
  const foreign = await owned(startConsole(daemon.url));
  // Another port is another origin; its own rules let it connect nowhere else, so the attempts come from a page without any.
  const other = await (browser as Chromium).open('about:blank#x');
  const results = await other.evaluate(`Promise.all([
    fetch('${foreign.origin}/about').then(() => 'read', () => 'refused'),
    fetch('${foreign.origin}/session', { method: 'POST', body: JSON.stringify({ secret: '${foreign.secret}' }) }).then(() => 'read', () => 'refused'),
    fetch('${foreign.origin}/session', { method: 'POST', mode: 'no-cors', body: JSON.stringify({ secret: '${foreign.secret}' }) }).then(({ type }) => type, () => 'refused'),
  ])`);
  expect(results.slice(0, 2)).toEqual(['refused', 'refused']);
  // The attempts have not even used up the secret.
  const its = await (browser as Chromium).open(foreign.link);
  await its.shows('reachable');
});
