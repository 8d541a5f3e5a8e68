import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { hostname, release } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { type BrowserPage, Chromium } from '../../support/clients/chromium.ts';
import { chooseRow, picture, seriousFindings, showView } from '../../support/clients/console-page.ts';
import { reasonAgainst } from '../../support/machine/machine.ts';
import { needs } from '../../support/machine/needs.ts';
import { buildPage, startConsole, type TestConsole } from '../../support/programs/console.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { envctl, startEnvctl } from '../../support/programs/envctl.ts';
import { owned } from '../../support/programs/owned.ts';
import { init } from '../../support/programs/sandbox.ts';
import { startFront } from '../../support/servers/front.ts';
import { startStubDaemon } from '../../support/servers/stub-daemon.ts';
import { until } from '../../support/until.ts';

/* The views of the console, in a browser, against the real daemon. */

const TOKEN = 'token-of-the-console';
const env = { ENVCTL_TOKEN: TOKEN };
let daemon: TestDaemon;
let served: TestConsole;
let browser: Chromium | undefined;
let page: BrowserPage;

beforeAll(async () => {
  if (reasonAgainst('chromium') !== null) return;
  buildPage();
  daemon = await startDaemon();
  await init(daemon, { accessToken: TOKEN, defaultUser: 'root' });
  served = await startConsole(daemon.url, [], { env });
  browser = new Chromium();
  page = await browser.open(served.link);
});
afterAll(async () => {
  for (const each of [browser, served, daemon]) await each?.[Symbol.asyncDispose]();
});
beforeEach(() => needs('chromium'));

test('the page has taken the secret out of the address, and a reload keeps the session', async () => {
  await page.shows('reachable');
  expect(await page.evaluate('location.href')).toBe(`${served.origin}/#/Glance`);
  await page.goTo(`${served.origin}/`);
  await page.shows('reachable');
  const second = await (browser as Chromium).open(served.link);
  await second.shows('This window cannot use the console');
});

test('a sandbox at a glance', async () => {
  await showView(page, 'Glance');
  for (const text of ['envd 0.', '0.6.13', 'What this guest can', 'reachable']) await page.shows(text);
  await page.until(
    'the last hour was asked for',
    `performance.getEntriesByType('resource').some(({ name, responseStatus }) => /metrics.history$/.test(name) && responseStatus === 200)`,
  );
  expect(await page.evaluate('document.body.innerText')).not.toContain('keeps no figures');
  await page.until('all plots are drawn', `document.querySelectorAll('.plot canvas').length === 5`);
  await page.until(
    'the figures are told',
    `/CPU [\\d.]+ % of \\d/.test(document.querySelector('figcaption').innerText)`,
  );
  const fact = (title: string) =>
    `[...document.querySelectorAll('.facts > div')].find((each) => each.firstChild.textContent === '${title}')?.lastChild.textContent`;
  await page.until('the host name is told', `${fact('Host name')} === ${JSON.stringify(hostname())}`);
  expect(await page.evaluate(fact('System'))).toContain(`Linux ${release()}`);
  expect(await page.evaluate(fact('Up for'))).toMatch(/^\d+ (second|minute|hour|day)s?$/);
  await page.until('ports are told', `/\\b${daemon.port}\\b/.test(${fact('Ports')})`);
  await page.until(
    'the busiest ones are told',
    `document.querySelectorAll('.busiest tbody tr').length === 5`,
  );
  // The picture is for people, with some figures in it.
  if (process.env.ENVD_SCREENSHOTS) {
    await new Promise((resolve) => setTimeout(resolve, 30_000));
    // It has nothing of the machine that it is made on.
    await page.evaluate(`document.querySelector('.busiest').style.visibility = 'hidden'`);
  }
  await picture(page, 'glance');
});

/** Points at the newest figure of the plots, and returns what the first one tells of it. */
async function pointAtNewest(): Promise<string> {
  const { x, y } = await page.evaluate(
    `(({ top, right, height }) => ({ x: right - 3, y: top + height / 2 }))(document.querySelector('.u-over').getBoundingClientRect())`,
  );
  for (const at of [x - 5, x]) await page.send('Input.dispatchMouseEvent', { type: 'mouseMoved', x: at, y });
  return page.evaluate(`document.querySelector('figcaption').textContent`);
}

test('one cross-hair goes through all plots, with the figures of its time', async () => {
  const captions = `[...document.querySelectorAll('figcaption')].map(({ textContent }) => textContent)`;
  await page.bringToFront();
  await pointAtNewest();
  await page.until(
    'all tell the same time',
    `new Set(${captions}.map((each) => /at \\d\\d:\\d\\d:\\d\\d/.exec(each)?.[0] ?? each)).size === 1`,
  );
  expect((await page.evaluate(captions))[0]).toMatch(/^CPU at [\d:]+: ([\d.]+ %|not known)$/);
  await page.send('Input.dispatchMouseEvent', { type: 'mouseMoved', x: 1, y: 1 });
  await page.until('the figures of now are told', `!/ at \\d\\d:/.test(${captions}.join(' '))`);
});

test('processes: a form starts one, the tree shows it, and a signal is sent after a question', async () => {
  await showView(page, 'Processes');
  await page.press('Start a process');
  await page.fill('dialog [name=command]', 'echo roses; sleep 1234.5 & wait');
  await page.fill('dialog [name=tag]', 'garden');
  await page.evaluate(`document.querySelector('dialog [name=pty]').click()`);
  await page.press('Start', 'dialog');
  await page.until('its output has a tab', `document.querySelector('main').ariaLabel === 'Terminals'`);
  await showView(page, 'Processes');
  await page.fill('[aria-label="Filter processes"]', 'garden');
  await chooseRow(page, 'garden');
  await page.shows('sleep 1234.5');
  await picture(page, 'processes');
  await page.fill('[aria-label="Filter processes"]', '');
  await chooseRow(page, 'echo roses; sleep');
  const isBelowShown = `[...document.querySelectorAll('.rows .row')].some(({ children }) => children[1].textContent === 'sleep 1234.5')`;
  await page.until('what is below is shown', isBelowShown);
  await page.evaluate(`document.querySelector('.table').focus()`);
  await page.key('ArrowLeft');
  await page.until('what is below is hidden', `!${isBelowShown}`);
  await page.key('ArrowRight');
  await page.until('what is below is shown', isBelowShown);
  const isThere = async () => (await envctl(daemon.url, ['ps'], { env })).stdout.includes('garden');
  await page.press('Signal');
  await page.until('Cancel has the focus', `document.activeElement?.textContent === 'Cancel'`);
  await page.press('Cancel', 'dialog');
  expect(await isThere()).toBe(true);
  await page.press('Signal');
  await page.press('Send it', 'dialog');
  await page.until(
    'it has gone',
    `![...document.querySelectorAll('.rows .row')].some((row) => row.textContent.includes('garden'))`,
  );
  expect(await isThere()).toBe(false);
});

test('events: starts, ends with their status, time limits and freezes', async () => {
  await showView(page, 'Events');
  // The page looks at the processes now and then: one that has ended before was never there for it.
  const seen = join(daemon.scratch, 'seen');
  const script = `until [ -e '${seen}' ]; do sleep 0.1; done; exit 7`;
  const running = startEnvctl(daemon.url, ['run', '--tag', 'one', 'sh', '-c', script], { env });
  await page.shows(', one) was started');
  writeFileSync(seen, '');
  await running.result;
  await page.shows(', one) has ended: exit status 7');
  await envctl(daemon.url, ['run', '--timeout', '10', '--tag', 'limited', 'sleep', '1000'], { env });
  await page.shows(', limited) was killed at its time limit');
  if (reasonAgainst('cgroup v2') === null) {
    await envctl(daemon.url, ['freeze'], { env });
    await page.shows('the workload is frozen');
    await page.until('the head says so', `document.querySelector('.reach').textContent === 'frozen'`);
    // What is frozen has no figures, which is a gap.
    await showView(page, 'Glance');
    await page.until('it is drawn', `!!document.querySelector('.u-over')`);
    await until('no figure is told', pointAtNewest, (text) => /^CPU at [\d:]+: not known$/.test(text));
    await showView(page, 'Events');
    await envctl(daemon.url, ['thaw'], { env });
    await page.shows('the workload runs again');
  }
  await picture(page, 'events');
});

test('events: a port that appears, with a link to it', async () => {
  // A daemon forwards ports only where the guest has an address; all but its answer about that is the real one.
  const ports = { address: '10.9.8.7', ports: [] as { port: number; target: string; connections: number }[] };
  const front = await owned(
    startFront(daemon.url, {
      answers({ url }, response) {
        if (url === '/ports') response.end(JSON.stringify(ports));
        else if (url === '/ports/stream') response.writeHead(404).end();
        else return false;
        return true;
      },
    }),
  );
  const other = await owned(startConsole(front.url, [], { env }));
  const its = await (browser as Chromium).open(other.link);
  await its.shows('reachable');
  await showView(its, 'Events');
  ports.ports = [{ port: 5173, target: '127.0.0.1', connections: 0 }];
  await its.shows('a server listens at port 5173');
  const link = `[...document.querySelectorAll('.event a')].map(({ href, rel, target }) => [href, rel, target])`;
  expect(await its.evaluate(link)).toEqual([['http://10.9.8.7:5173/', 'noopener noreferrer', '_blank']]);
  ports.ports = [];
  await its.shows('port 5173 has gone');
  // An address that is none is no link.
  ports.address = 'javascript:alert(1)//';
  ports.ports = [{ port: 80, target: '127.0.0.1', connections: 0 }];
  await its.shows('a server listens at port 80');
  expect(await its.evaluate(`document.querySelectorAll('.events a, .ports a').length`)).toBe(0);
  expect(its.problems).toEqual([]);
});

test('every listener is told with its process, and a server that starts says so', async () => {
  await showView(page, 'Events');
  const child = spawn(process.execPath, [
    ...[
      '-e',
      `require('net').createServer().listen(0, '0.0.0.0', function () { console.log(this.address().port) })`,
    ],
  ]);
  await owned(Promise.resolve({ [Symbol.asyncDispose]: async () => void child.kill('SIGKILL') }));
  const port = Number(String(await once(child.stdout, 'data')));
  await page.until(
    'it is told',
    `[...document.querySelectorAll('.ports li')].some(({ innerText }) => innerText.includes('${port}') && innerText.includes('all addresses') && innerText.includes('node') && innerText.includes('${child.pid}'))`,
  );
  await page.shows(`listens at port ${port}`);
  await page.evaluate(`navigator.clipboard.writeText = async (text) => { window.copied = text }`);
  await page.evaluate(
    `document.querySelector('.ports [aria-label$="${port}"], .ports [aria-label$="${port}/"]').click()`,
  );
  await page.until('it is copied', `/${port}/.test(window.copied)`);
  child.kill('SIGKILL');
  await page.shows(`port ${port} has gone`);
});

test('the keyboard alone chooses views and rows', async () => {
  await showView(page, 'Glance');
  await page.key('Digit3', 'alt', 'shift');
  await page.until('Processes are shown', `document.querySelector('main').ariaLabel === 'Processes'`);
  await page.until('there are rows', `document.querySelectorAll('.rows .row').length > 1`);
  await page.evaluate(`document.querySelector('.table').focus()`);
  await page.key('ArrowDown');
  await page.key('ArrowDown');
  await page.until(
    'the second row is chosen',
    `document.querySelectorAll('.rows .row')[1].ariaSelected === 'true'`,
  );
  expect(await page.evaluate(`document.querySelector('.table').getAttribute('aria-activedescendant')`)).toBe(
    'row-1',
  );
});

test('Ctrl+K finds a command, also from a terminal by Alt+Shift+K, and ? lists the keys', async () => {
  await showView(page, 'Glance');
  await page.evaluate(`document.querySelector('.glance').focus()`);
  await page.key('KeyK', 'ctrl');
  await page.until('it is typed into', `document.activeElement?.ariaLabel === 'Command'`);
  expect(await seriousFindings(page)).toEqual([]);
  await page.type('new term');
  await page.until('one is left', `document.querySelectorAll('[role=option]').length === 1`);
  await page.key('Enter');
  await page.until('a terminal has the focus', `!!document.activeElement?.closest('.xterm')`);
  const tabs = await page.evaluate(`document.querySelectorAll('[role=tab]').length`);
  await page.key('KeyK', 'ctrl');
  await page.key('KeyK', 'alt', 'shift');
  await page.until('it is open', `!!document.querySelector('.palette[open]')`);
  await page.key('Escape');
  await page.until('it is closed', `!document.querySelector('.palette')`);
  await page.until('the terminal has the focus again', `!!document.activeElement?.closest('.xterm')`);
  await page.key('KeyT', 'alt', 'shift');
  await page.until('there is another', `document.querySelectorAll('[role=tab]').length === ${tabs} + 1`);
  await showView(page, 'Glance');
  await page.evaluate(`document.querySelector('.glance').focus()`);
  await page.key('Slash', 'shift');
  await page.shows('Keyboard shortcuts');
  expect(await seriousFindings(page)).toEqual([]);
  await page.key('Escape');
  await page.until('it is closed', `!document.querySelector('dialog')`);
});

test('axe finds nothing serious, light and dark, wide and narrow, and nothing is cut off', async () => {
  for (const [width, scheme] of [
    [1280, 'light'],
    [390, 'dark'],
    [1280, 'dark'],
    [390, 'light'],
  ] as const) {
    await page.resize(width, 720);
    await page.send('Emulation.setEmulatedMedia', {
      features: [{ name: 'prefers-color-scheme', value: scheme }],
    });
    for (const view of ['Glance', 'Terminals', 'Processes', 'Files', 'Events']) {
      await showView(page, view);
      expect(await seriousFindings(page), `${view}, ${width}, ${scheme}`).toEqual([]);
      expect(await page.evaluate('document.documentElement.scrollWidth'), view).toBeLessThanOrEqual(width);
    }
  }
  await page.resize(1280, 720);
});

test('no script has failed, and no rule of the page was broken', () => {
  expect(page.problems).toEqual([]);
});

test('what the first view loads is at most 90 kB, compressed', async () => {
  const loaded: string[] = await page.evaluate(
    `performance.getEntriesByType('resource').map(({ name }) => new URL(name).pathname)`,
  );
  expect(loaded).toContain('/main.js');
  const directory = process.env.ENVD_TEST_IMAGE
    ? `${process.env.ENVD_TEST_IMAGE}/dist-envctl/share/console`
    : 'node_modules/.cache/console';
  const root = fileURLToPath(new URL('../../..', import.meta.url));
  const sizes = readdirSync(join(root, directory)).map(
    (name) => [name, gzipSync(readFileSync(join(root, directory, name))).length] as const,
  );
  // Terminals and the editor come with the first of them; all the rest, plots too, is counted.
  const first = sizes.filter(([name]) => !/^(screen|addon-webgl|text-editor)/.test(name));
  expect(first.length).toBeGreaterThan(3);
  expect(first.reduce((sum, [, size]) => sum + size, 0)).toBeLessThan(90_000);
});

test('a daemon that knows the published interface alone is shown, too', async () => {
  const stub = await owned(startStubDaemon({ tree: { '/': null, '/d': null, '/d/poem': 'roses\n' } }));
  const other = await owned(startConsole(stub.url));
  const its = await (browser as Chromium).open(other.link);
  await its.shows('reachable');
  await its.shows('not told');
  await its.shows('This daemon keeps no figures, so the plots begin at');
  await showView(its, 'Processes');
  await its.shows('sh -c');
  await showView(its, 'Files');
  await its.until('the root is open', `document.querySelector('[name=path]')?.value === '/'`);
  await its.fill('[name=path]', '/d');
  await its.press('Go');
  await its.shows('poem');
});
