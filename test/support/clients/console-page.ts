import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import axe from 'axe-core';
import type { BrowserPage } from './chromium.ts';

const PICTURES = fileURLToPath(new URL('../../../docs/console', import.meta.url));

/** Writes a picture of the page for the documents, if `ENVD_SCREENSHOTS` asks for it. */
export async function picture(page: BrowserPage, name: string): Promise<void> {
  if (!process.env.ENVD_SCREENSHOTS) return;
  mkdirSync(PICTURES, { recursive: true });
  await page.shoot(join(PICTURES, `${name}.png`));
}

/** The serious and critical findings of axe in the page, as it is shown. */
export async function seriousFindings(page: BrowserPage): Promise<string[]> {
  await page.evaluate(`window.axe ?? (() => { ${axe.source} })(); 0`);
  return page.evaluate(`axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) =>
    violations
      .filter(({ impact }) => impact === 'serious' || impact === 'critical')
      .map(({ id, nodes }) => id + ': ' + nodes.slice(0, 3).map(({ html }) => html.slice(0, 200)).join(' | ')))`);
}

/** Opens a view. */
export async function showView(page: BrowserPage, name: string): Promise<void> {
  await page.bringToFront();
  await page.press(name, 'nav');
  await page.until(
    `${name} is shown`,
    `document.querySelector('main').ariaLabel === ${JSON.stringify(name)}`,
  );
}

/** Clicks a row of the table that is shown, by a text in it. */
export async function chooseRow(page: BrowserPage, text: string): Promise<void> {
  const find = `[...document.querySelectorAll('.rows .row')].find((row) => row.textContent.includes(${JSON.stringify(text)}))`;
  // Only the rows that are visible are in the page.
  const look = `(() => {
    const table = document.querySelector('.table');
    const found = ${find};
    const isAtEnd = table.scrollTop + table.clientHeight >= table.scrollHeight - 1;
    if (!found) table.scrollTop = isAtEnd ? 0 : table.scrollTop + table.clientHeight * 0.8;
    return !!found;
  })()`;
  await page.bringToFront();
  await page.until(`there is a row with '${text}'`, look);
  await page.evaluate(`${find}.click()`);
}

/** The text in the editor of a file, which must be short enough to be shown as a whole. */
export const EDITED = `[...document.querySelectorAll('.cm-line')].map(({ textContent }) => textContent).join('\\n')`;

/** Replaces the text in the editor of a file. */
export async function editText(page: BrowserPage, text: string): Promise<void> {
  await page.bringToFront();
  await page.until('there is an editor', `!!document.querySelector('.cm-content')`);
  await page.evaluate(`document.querySelector('.cm-content').focus()`);
  await page.key('KeyA', 'ctrl');
  // A paste, because a text of several lines is not typed at once.
  await page.evaluate(`(() => {
    const clipboardData = new DataTransfer();
    clipboardData.setData('text/plain', ${JSON.stringify(text)});
    const options = { clipboardData, bubbles: true, cancelable: true };
    document.querySelector('.cm-content').dispatchEvent(new ClipboardEvent('paste', options));
  })()`);
  await page.until('it has the text', `${EDITED} === ${JSON.stringify(text)}`);
}

/** The text of the terminal that is shown, where it is drawn as elements. */
export const SCREEN = `(document.querySelector('.xterm-rows')?.innerText ?? '').replaceAll('\\u00a0', ' ')`;

/** Waits until the terminal shows a text. */
export async function screenShows(page: BrowserPage, text: string, limitMs?: number): Promise<void> {
  await page.bringToFront();
  await page.until(`the terminal shows '${text}'`, `${SCREEN}.includes(${JSON.stringify(text)})`, limitMs);
}

/** Types a line into the terminal that is shown. */
export async function typeLine(page: BrowserPage, line: string): Promise<void> {
  await page.until('there is a screen', `!!document.querySelector('.xterm-helper-textarea')`);
  await page.evaluate(`document.querySelector('.xterm-helper-textarea').focus()`);
  await page.type(line);
  await page.key('Enter');
}
