import { execFileSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { type BrowserPage, Chromium } from '../../support/clients/chromium.ts';
import {
  chooseRow,
  picture,
  SCREEN,
  screenShows,
  showView,
  typeLine,
} from '../../support/clients/console-page.ts';
import { TestScreen } from '../../support/clients/screen.ts';
import { TestSocket } from '../../support/clients/websocket.ts';
import { reasonAgainst } from '../../support/machine/machine.ts';
import { needs } from '../../support/machine/needs.ts';
import { buildPage, startConsole, type TestConsole } from '../../support/programs/console.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { envctl } from '../../support/programs/envctl.ts';
import { owned } from '../../support/programs/owned.ts';
import { init } from '../../support/programs/sandbox.ts';
import { freePort } from '../../support/servers/free-port.ts';
import { type Relay, startRelay } from '../../support/servers/relay.ts';
import { until } from '../../support/until.ts';

/* The terminals of the console, in a browser, against the real daemon behind a relay that breaks connections. */

let daemon: TestDaemon;
let relay: Relay;
let served: TestConsole;
let browser: Chromium | undefined;
let page: BrowserPage;

beforeAll(async () => {
  if (reasonAgainst('chromium') !== null) return;
  buildPage();
  daemon = await startDaemon();
  await init(daemon, { defaultUser: 'root', envVars: { HOME: daemon.scratch, PS1: '$ ' } });
  relay = await startRelay(daemon.port);
  served = await startConsole(`http://127.0.0.1:${relay.port}`);
  browser = new Chromium({ hasWebgl: false });
  page = await browser.open(served.link);
  await showView(page, 'Terminals');
  await page.press('New terminal');
});
afterAll(async () => {
  for (const each of [browser, served, relay, daemon]) await each?.[Symbol.asyncDispose]();
});
beforeEach(() => needs('chromium'));

test('a shell runs in a tab: keys in order, the size of the window, and the title', async () => {
  await page.until('there is a screen', `!!document.querySelector('.xterm-helper-textarea')`);
  await typeLine(page, `echo $((40 + 2)) roses`);
  await screenShows(page, '42 roses');
  const word = 'abcdefghijklmnopqrstuvwxyz0123456789';
  await page.evaluate(`document.querySelector('.xterm-helper-textarea').focus()`);
  await page.type('echo [');
  for (const letter of word) await page.type(letter);
  await typeLine(page, ']');
  await screenShows(page, `\n[${word}]`.trim());
  await typeLine(page, 'stty size | tr " " x; printf "\\033]0;a title\\007"');
  await page.until('the size is told', `/\\n\\d\\dx\\d\\d\\d?/.test(${SCREEN})`);
  await page.until(
    'the tab has the title',
    `document.querySelector('[role=tab]').textContent.includes('a title')`,
  );
  const columns = async () =>
    Number((await page.evaluate(`[...${SCREEN}.matchAll(/\\n\\d+x(\\d+)/g)].at(-1)?.[1]`)) ?? 0);
  const before = await columns();
  await page.resize(800, 600);
  // The new size is told some time later.
  const isOld = `[ "$(stty size | cut -d" " -f2)" -ge ${before} ]`;
  await typeLine(page, `clear; while ${isOld}; do sleep 0.1; done; stty size | tr " " x`);
  await page.until(
    'the size is another',
    `[...${SCREEN}.matchAll(/(?:^|\\n)\\d+x(\\d+)/g)].some(([, width]) => Number(width) < ${before})`,
  );
  await page.resize(1280, 720);
});

test('20 MB of output go through, while the page goes on to answer', async () => {
  await typeLine(
    page,
    `clear; yes 0123456789012345678901234567890123456789012345678 | head -c 20000000; echo the end of it`,
  );
  let frames = 0;
  const deadline = performance.now() + 170_000;
  // Each call waits for a frame that the page draws.
  while (
    !(await page.evaluate(
      `new Promise(requestAnimationFrame).then(() => /\\nthe end of it/.test(${SCREEN}))`,
    ))
  ) {
    frames++;
    if (performance.now() > deadline) throw new Error('the output does not end');
  }
  expect(frames).toBeGreaterThan(3);
});

test('a connection that breaks off in the middle loses no output and repeats none', async () => {
  await typeLine(page, `clear; for i in $(seq 30); do echo line $i; sleep 0.1; done; echo don''e`);
  await screenShows(page, 'line 5');
  relay.reset();
  await page.shows('connected again, nothing was lost');
  expect(await page.evaluate(SCREEN)).not.toContain('connected again');
  await screenShows(page, 'done');
  const lines: string[] = await page.evaluate(`${SCREEN}.match(/line \\d+/g)`);
  expect(lines.filter((line, index) => lines.indexOf(line) !== index)).toEqual([]);
  expect(lines.at(-1)).toBe('line 30');
  await typeLine(page, 'clear; echo still $((6 * 7))');
  await screenShows(page, 'still 42');
});

/** Opens the output of a process in another window. */
async function openOutput(pid: string): Promise<BrowserPage> {
  const { secret } = await page.evaluate(
    `fetch('/links', { method: 'POST', headers: { 'x-console-session': sessionStorage.getItem('session') } }).then((answer) => answer.json())`,
  );
  const other = await (browser as Chromium).open(`${served.origin}/#${secret}`);
  await showView(other, 'Processes');
  await chooseRow(other, pid);
  await other.press('Output');
  return other;
}

test('several windows see the same terminal, and both may type', async () => {
  await typeLine(page, 'echo pid $$');
  const pid = await (async () => {
    await page.until('the pid is told', `/\\npid \\d+/.test(${SCREEN})`);
    return page.evaluate(`${SCREEN}.match(/\\npid (\\d+)/)[1]`);
  })();
  const other = await openOutput(pid);
  await screenShows(other, 'pid');
  await typeLine(other, 'echo from the other $((1 + 1))');
  await screenShows(other, 'from the other 2');
  await screenShows(page, 'from the other 2');
  await typeLine(page, 'echo from the first $((1 + 2))');
  await screenShows(other, 'from the first 3');
});

test('a program whose output is not kept any more is shown as its first viewer sees it', async () => {
  const lines = Array.from({ length: 99 }, (_, line) => `line ${line} ${'wörd '.repeat(line % 9)}`);
  await writeFile(join(daemon.scratch, 'text'), lines.join('\n'));
  const cmd = 'head -c 3000000 /dev/zero | tr "\\0" x; exec vi -u NONE -N text';
  const query = new URLSearchParams({ cwd: daemon.scratch, cmd });
  const first = await TestSocket.open(daemon.url, `/terminal?${query}`);
  first.send(Buffer.from('42Gihello \x1b'));
  // Not the echo of what was typed: the program has drawn it.
  await first.shows(/hello line 41/);
  const { pid } = await first.message('start');
  const { length } = first;
  const other = await openOutput(String(pid));
  await screenShows(other, 'hello line 41');
  const sizeOf = () => {
    const size = execFileSync('sh', ['-c', 'exec stty size < /proc/$0/fd/0', String(pid)]);
    const [rows = 0, cols = 0] = String(size).trim().split(' ').map(Number);
    return { rows, cols };
  };
  const textOf = async () => {
    const screen = new TestScreen();
    await screen.write(first.bytes.subarray(0, length));
    // Its margins are those of the new size then.
    screen.resize(sizeOf());
    await screen.write(first.bytes.subarray(length));
    return screen.text.trimEnd().split('\n');
  };
  await until(
    'both show the same',
    async () => {
      // The browser leaves out empty rows at the end.
      const shown: string = await other.evaluate(SCREEN);
      return [
        await textOf(),
        shown
          .trimEnd()
          .split('\n')
          .map((line) => line.trimEnd()),
      ] as const;
    },
    ([wanted, shown]) => wanted.includes('line 40 wörd wörd wörd wörd') && isDeepStrictEqual(wanted, shown),
  );
});

const TABS = `document.querySelectorAll('[role=tab]').length`;

test('search, copy and paste', async () => {
  await (browser as Chromium).send('Browser.grantPermissions', {
    permissions: ['clipboardReadWrite', 'clipboardSanitizedWrite'],
    origin: served.origin,
  });
  // A first try may have left a tab.
  const tabs = Number(await page.evaluate(TABS));
  await page.press('New terminal');
  await page.until('there is one tab more', `${TABS} === ${tabs + 1}`);
  await screenShows(page, '#');
  await typeLine(page, 'echo a needle in the hay');
  await screenShows(page, '\na needle');
  await page.fill('.tools input', 'needle');
  await page.press('Previous', '.tools');
  await page.press('Copy', '.tools');
  await page.until(
    'it is in the clipboard',
    `navigator.clipboard.readText().then((text) => text === 'needle')`,
  );
  await page.fill('.tools input', 'pitchfork');
  await page.press('Next', '.tools');
  await page.shows('not found');
  await page.evaluate(`navigator.clipboard.writeText('echo pas\\'\\'ted')`);
  await page.press('Paste', '.tools');
  await screenShows(page, `echo pas''ted`);
  await typeLine(page, '');
  await screenShows(page, 'pasted');
});

test('a program copies only what the user allows', async () => {
  await page.evaluate(`navigator.clipboard.writeText('before')`);
  await typeLine(page, `printf '\\033]52;c;%s\\007' "$(printf 'roses ü' | base64)"`);
  await page.shows('wants to put 7 characters into your clipboard');
  expect(await page.evaluate('navigator.clipboard.readText()')).toBe('before');
  await page.press('Refuse', '.note');
  await page.until('the offer has gone', `!document.querySelector('.note button')`);
  expect(await page.evaluate('navigator.clipboard.readText()')).toBe('before');
  // A program that asks what the clipboard has gets nothing, and no question.
  await typeLine(page, `clear; printf '\\033]52;c;?\\007'; echo asked $((1 + 1))`);
  await screenShows(page, 'asked 2');
  expect(await page.evaluate(`!!document.querySelector('.note button')`)).toBe(false);
  await typeLine(page, `printf '\\033]52;c;%s\\007' "$(printf 'roses ü' | base64)"`);
  await page.press('Allow', '.note');
  await page.until('it is copied', `navigator.clipboard.readText().then((text) => text === 'roses ü')`);
});

test('the keys of phones, the size of the text, and Ctrl+Shift+F', async () => {
  const rows = `document.querySelectorAll('.xterm-rows > div').length`;
  const before = await page.evaluate(rows);
  for (const _ of [1, 2, 3, 4])
    await page.evaluate(`document.querySelector('[aria-label="A+, larger text"]').click()`);
  await page.until('fewer rows fit', `${rows} < ${before}`);
  for (const _ of [1, 2, 3, 4])
    await page.evaluate(`document.querySelector('[aria-label="A−, smaller text"]').click()`);
  await page.until('as many as before fit', `${rows} === ${before}`);
  await page.resize(390, 720);
  await typeLine(page, `clear; echo rea''dy; cat -v`);
  await screenShows(page, 'ready');
  await page.evaluate(`document.querySelector('[aria-label=Keys] [aria-label=Up]').click()`);
  await page.press('Esc', '[aria-label=Keys]');
  await typeLine(page, 'x');
  // Once as the echo of the terminal, and once as what the program has read.
  await page.until('it has read the keys', `${SCREEN}.split('^[[A^[x').length === 3`);
  await page.press('Ctrl', '[aria-label=Keys]');
  await page.type('c');
  await page.until('the shell is back', `/\\^C\\s+[^\\n]*[$#]\\s*$/.test(${SCREEN})`);
  await page.resize(1280, 720);
  await page.evaluate(`document.querySelector('.xterm-helper-textarea').focus()`);
  await page.key('KeyF', 'ctrl', 'shift');
  await page.until('the search has the focus', `document.activeElement?.type === 'search'`);
});

test('closing a tab asks what becomes of the process', async () => {
  const before = (await envctl(daemon.url, ['ps'])).stdout.split('\n').length;
  const tabs = Number(await page.evaluate(TABS));
  await page.press('Close', '.tools');
  await page.press('Kill it', 'dialog');
  await page.until('there is one tab less', `${TABS} === ${tabs - 1}`);
  expect((await envctl(daemon.url, ['ps'])).stdout.split('\n').length).toBe(before - 1);
});

test('a daemon that is upgraded under an open page: the terminal goes on', async () => {
  await typeLine(page, 'clear; echo before');
  await screenShows(page, 'before');
  expect((await envctl(daemon.url, ['upgrade'])).code).toBe(0);
  await page.shows('connected again, nothing was lost');
  expect(await page.evaluate(SCREEN)).not.toContain('connected again');
  await typeLine(page, 'echo after $((3 * 3))');
  await screenShows(page, 'after 9');
  await showView(page, 'Events');
  await page.shows('the daemon was started anew');
});

test('a daemon that stands still for a while under an open page', async () => {
  await showView(page, 'Terminals');
  process.kill(daemon.pid, 'SIGSTOP');
  await page.until('it is lost', `document.querySelector('.reach').textContent === 'lost'`);
  await showView(page, 'Glance');
  await page.until('the figures are of then', `/All figures are of \\d\\d:/.test(document.body.innerText)`);
  await showView(page, 'Terminals');
  process.kill(daemon.pid, 'SIGCONT');
  await page.until('it is there again', `document.querySelector('.reach').textContent === 'reachable'`);
  await typeLine(page, 'clear; echo on it goes $((5 * 5))');
  await screenShows(page, 'on it goes 25');
});

test('a daemon that is killed and started again under an open page', async () => {
  const port = await freePort();
  const first = await startDaemon({ port });
  const its = await owned(startConsole(first.url));
  const window = await (browser as Chromium).open(its.link);
  await window.shows('reachable');
  await first.stop('SIGKILL');
  await window.until('it is lost', `document.querySelector('.reach').textContent === 'lost'`);
  await first[Symbol.asyncDispose]();
  await owned(startDaemon({ port }));
  await window.until('it is there again', `document.querySelector('.reach').textContent === 'reachable'`);
  await showView(window, 'Events');
  await window.shows('the daemon does not answer');
  await window.shows('the daemon was started anew');
  expect(window.problems).toEqual([]);
});

test('with WebGL it is drawn by that, and links of a program open after a question', async () => {
  await browser?.[Symbol.asyncDispose]();
  browser = new Chromium();
  const its = await owned(startConsole(daemon.url));
  const window = await browser.open(its.link);
  await showView(window, 'Terminals');
  await window.press('New terminal');
  await window.until('there is a screen', `!!document.querySelector('.xterm-helper-textarea')`);
  await typeLine(
    window,
    `printf '\\033[1;32mroses\\033[0m \\033[38;2;255;160;0mare\\033[0m \\033[41mred\\033[0m\\n'; seq -s ' ' 20; stty size`,
  );
  await window.until('it is drawn', `!!document.querySelector('.xterm canvas, .xterm-rows')`);
  await window.until('the tab runs', `!/starting/.test(document.querySelector('[role=tab]').textContent)`);
  // The picture is for people; nothing tells when WebGL has drawn.
  if (process.env.ENVD_SCREENSHOTS) await new Promise((resolve) => setTimeout(resolve, 2000));
  await picture(window, 'terminals');
  expect(window.problems).toEqual([]);
});

test('no script has failed', () => {
  expect(page.problems).toEqual([]);
});
