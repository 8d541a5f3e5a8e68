import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { expect } from 'vitest';
import { until } from '../until.ts';

/* Drives a headless Chromium by the DevTools protocol, over pipes: no port is opened. */

// biome-ignore lint/suspicious/noExplicitAny: messages of the protocol are looked at member by member
type Told = any;

const FLAGS = [
  ...['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'],
  ...[
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
    '--remote-debugging-pipe',
  ],
  // The page of a test is on this machine, and it must not find its way to another one.
  '--host-resolver-rules=MAP *.localhost 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
];

/** How a browser is started. */
export interface ChromiumOptions {
  /** False: pages have no WebGL, so that a terminal draws its text as elements. */
  readonly hasWebgl?: boolean;
}

/** One browser; others of this user wait until it has ended. */
export class Chromium implements AsyncDisposable {
  readonly downloads: string;
  readonly #directory: string;
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, PromiseWithResolvers<Told>>();
  readonly #pages = new Map<string, BrowserPage>();
  #count = 0;
  #rest = '';

  constructor({ hasWebgl = true }: ChromiumOptions = {}) {
    this.#directory = mkdtempSync(join(tmpdir(), 'envd-test-chromium-'));
    this.downloads = join(this.#directory, 'downloads');
    const flags = [
      ...FLAGS,
      `--user-data-dir=${this.#directory}/data`,
      ...(hasWebgl ? [] : ['--disable-3d-apis']),
    ];
    const lock = ['--no-fork', join(tmpdir(), 'envd-test-chromium.lock'), 'chromium'];
    this.#child = spawn('flock', [...lock, ...flags, 'about:blank'], {
      stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'],
    });
    (this.#child.stdio[4] as Readable).setEncoding('utf8').on('data', (text: string) => this.#take(text));
    (this.#child.stdio[3] as Writable).on('error', () => {});
  }

  /** Opens a page, and waits until it is loaded. */
  async open(url: string, { width = 1280, height = 720 } = {}): Promise<BrowserPage> {
    await this.send('Browser.setDownloadBehavior', { behavior: 'allow', downloadPath: this.downloads });
    const { targetId } = await this.send('Target.createTarget', { url: 'about:blank' });
    const { sessionId } = await this.send('Target.attachToTarget', { targetId, flatten: true });
    const page = new BrowserPage(this, sessionId);
    this.#pages.set(sessionId, page);
    for (const domain of ['Page', 'Runtime', 'Log', 'Network']) await page.send(`${domain}.enable`);
    await page.resize(width, height);
    await page.goTo(url);
    return page;
  }

  /** Makes a call of the protocol. */
  async send(method: string, params: object = {}, sessionId?: string): Promise<Told> {
    const id = ++this.#count;
    const answer = Promise.withResolvers<Told>();
    this.#waiting.set(id, answer);
    (this.#child.stdio[3] as Writable).write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    return answer.promise;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const exited = this.#child.exitCode === null && once(this.#child, 'exit');
    this.#child.kill('SIGTERM');
    await exited;
    rmSync(this.#directory, { recursive: true, force: true, maxRetries: 20 });
  }

  #take(text: string): void {
    const messages = (this.#rest + text).split('\0');
    this.#rest = messages.pop() ?? '';
    for (const message of messages) this.#dispatch(JSON.parse(message));
  }

  #dispatch({ id, result, error, method, params, sessionId }: Told): void {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (error) waiting?.reject(new Error(`${error.message} ${error.data ?? ''}`));
    else waiting?.resolve(result);
    if (method) this.#pages.get(sessionId)?.take(method, params);
  }
}

const MODIFIERS = { alt: 1, ctrl: 2, meta: 4, shift: 8 } as const;

/** A page of the browser. */
export class BrowserPage {
  /** Errors that were thrown or printed, and violations of the page's policy. */
  readonly problems: string[] = [];
  /** Everything that the page has received, as text, with its headers. */
  readonly received: string[] = [];
  /** The kinds of the browser's own questions, all of which are answered with yes: `beforeunload`. */
  readonly asked: string[] = [];
  readonly #browser: Chromium;
  readonly #session: string;

  constructor(browser: Chromium, session: string) {
    this.#browser = browser;
    this.#session = session;
  }

  send(method: string, params: object = {}): Promise<Told> {
    return this.#browser.send(method, params, this.#session);
  }

  take(method: string, params: Told): void {
    if (method === 'Runtime.exceptionThrown')
      this.problems.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    if (method === 'Log.entryAdded' && params.entry.level === 'error' && params.entry.source !== 'network')
      this.problems.push(params.entry.text);
    if (method === 'Page.javascriptDialogOpening') {
      this.asked.push(params.type);
      void this.send('Page.handleJavaScriptDialog', { accept: true });
    }
    if (method === 'Network.responseReceived')
      this.received.push(JSON.stringify([params.response.url, params.response.headers]));
  }

  async goTo(url: string): Promise<void> {
    await this.send('Page.navigate', { url });
    await this.until(
      'the page is loaded',
      `document.readyState === 'complete' && location.href !== 'about:blank'`,
    );
  }

  /** Loads the page again, as the user does by F5. */
  async reload(): Promise<void> {
    await this.evaluate('window.isOld = true');
    await this.send('Page.reload');
    await this.until('it is loaded again', `!window.isOld && document.readyState === 'complete'`);
  }

  async resize(width: number, height: number): Promise<void> {
    await this.send('Emulation.setDeviceMetricsOverride', {
      width,
      height,
      deviceScaleFactor: 1,
      mobile: false,
    });
  }

  /** The value of an expression in the page; promises are awaited. */
  async evaluate(expression: string): Promise<Told> {
    const options = { awaitPromise: true, returnByValue: true, userGesture: true };
    const { result, exceptionDetails } = await this.send('Runtime.evaluate', { expression, ...options });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  /** Shows it before the others: a browser draws nothing in a page that nobody sees. */
  async bringToFront(): Promise<void> {
    await this.send('Page.bringToFront');
  }

  /** Waits until an expression is true. */
  async until(what: string, expression: string, limitMs?: number): Promise<void> {
    try {
      const held = await until(what, () => this.evaluate(expression).catch(() => false), Boolean, limitMs);
      expect(held, what).toBeTruthy();
    } catch (error) {
      const shown = await this.evaluate('document.body.innerText').catch(() => '');
      throw new Error(
        `${(error as Error).message}\n${this.problems.join('\n')}\n${String(shown).slice(0, 3000)}`,
      );
    }
  }

  /** Waits until the page shows a text. */
  async shows(text: string, limitMs?: number): Promise<void> {
    await this.until(
      `the page shows '${text}'`,
      `document.body.innerText.includes(${JSON.stringify(text)})`,
      limitMs,
    );
  }

  /** Presses the button with this text, once it can be pressed. */
  async press(text: string, within = 'body'): Promise<void> {
    const find = `[...document.querySelector(${JSON.stringify(within)}).querySelectorAll('button')].find((each) => each.textContent.trim() === ${JSON.stringify(text)} && !each.disabled)`;
    await this.until(
      `there is a button '${text}' in ${within}`,
      `!!document.querySelector(${JSON.stringify(within)}) && !!${find}`,
    );
    await this.evaluate(`${find}.click()`);
  }

  /** Fills in a field, by a selector. */
  async fill(selector: string, value: string): Promise<void> {
    await this.until(`there is ${selector}`, `!!document.querySelector(${JSON.stringify(selector)})`);
    await this.evaluate(`(() => {
      const field = document.querySelector(${JSON.stringify(selector)});
      field.value = ${JSON.stringify(value)};
      field.dispatchEvent(new Event('input', { bubbles: true }));
    })()`);
  }

  /** Types text, as a keyboard or an input method does. */
  async type(text: string): Promise<void> {
    await this.send('Input.insertText', { text });
  }

  /** Presses a key, such as `Enter` or `Digit2`. */
  async key(code: string, ...held: (keyof typeof MODIFIERS)[]): Promise<void> {
    const modifiers = held.reduce((sum, name) => sum | MODIFIERS[name], 0);
    const [key, number] = KEYS[code] ?? [code.replace(/^Digit|^Key/, ''), 0];
    const common = { code, key, modifiers, windowsVirtualKeyCode: number };
    await this.send('Input.dispatchKeyEvent', {
      ...common,
      type: 'keyDown',
      ...(code === 'Enter' && { text: '\r' }),
    });
    await this.send('Input.dispatchKeyEvent', { ...common, type: 'keyUp' });
  }

  /** Drops files and directories of this machine onto the middle of an element. */
  async drop(selector: string, files: readonly string[]): Promise<void> {
    const { x, y } = await this.evaluate(`(() => {
      const { left, top, width, height } = document.querySelector(${JSON.stringify(selector)}).getBoundingClientRect();
      return { x: left + width / 2, y: top + height / 2 };
    })()`);
    const data = { items: [], files, dragOperationsMask: 1 };
    for (const type of ['dragEnter', 'dragOver', 'drop'])
      await this.send('Input.dispatchDragEvent', { type, x, y, data });
  }

  /** Writes a picture of the page, at three quarters of its size. */
  async shoot(path: string): Promise<void> {
    await this.bringToFront();
    const { width, height } = await this.evaluate('({ width: innerWidth, height: innerHeight })');
    const clip = { x: 0, y: 0, width, height, scale: 0.75 };
    const { data } = await this.send('Page.captureScreenshot', { format: 'png', clip });
    writeFileSync(path, Buffer.from(data, 'base64'));
  }
}

const KEYS: Readonly<Record<string, readonly [key: string, number: number]>> = {
  Enter: ['Enter', 13],
  Delete: ['Delete', 46],
  Backspace: ['Backspace', 8],
  ArrowDown: ['ArrowDown', 40],
  ArrowLeft: ['ArrowLeft', 37],
  ArrowRight: ['ArrowRight', 39],
  ArrowUp: ['ArrowUp', 38],
  End: ['End', 35],
  F2: ['F2', 113],
  Tab: ['Tab', 9],
  Escape: ['Escape', 27],
  Slash: ['?', 191],
  KeyA: ['a', 65],
  KeyF: ['f', 70],
  KeyS: ['s', 83],
  Digit1: ['!', 49],
  Digit2: ['"', 50],
};
