import { describe, expect, test } from 'vitest';
import { Chromium } from '../support/clients/chromium.ts';
import { screenShows, showView, typeLine } from '../support/clients/console-page.ts';
import { booted, whenBooted } from '../support/guest/booted.ts';
import { resumed } from '../support/guest/resumed.ts';
import { needs } from '../support/machine/needs.ts';
import { buildPage, startConsole } from '../support/programs/console.ts';

/** Without KVM a shell may take this time to start. */
const LIMIT_MS = 300_000;

describe('the console of a guest', whenBooted, () => {
  test('shows the guest, runs a terminal in it, and shows its files', async () => {
    needs('chromium');
    buildPage();
    await using guest = await resumed(booted, { defaultUser: 'root' });
    const env = { ENVCTL_TOKEN: String(guest.token) };
    await using served = await startConsole(guest.url, [], { env });
    await using browser = new Chromium({ hasWebgl: false });
    const page = await browser.open(served.link);
    await page.shows('reachable', LIMIT_MS);
    const told = await page.evaluate(`(() => {
      const [{ loadEventEnd }] = performance.getEntriesByType('navigation');
      const [paint] = performance.getEntriesByName('first-contentful-paint');
      return { loaded: Math.round(loadEventEnd), painted: Math.round(paint?.startTime ?? 0), now: Math.round(performance.now()) };
    })()`);
    process.stderr.write(
      `test:guest: console: loaded after ${told.loaded} ms, painted after ${told.painted} ms, the guest shown after ${told.now} ms at most\n`,
    );
    await page.shows('What this guest can', LIMIT_MS);
    await showView(page, 'Terminals');
    await page.press('New terminal');
    await page.until('there is a screen', `!!document.querySelector('.xterm-helper-textarea')`, LIMIT_MS);
    await typeLine(page, 'echo "[$(uname -r)]"');
    await screenShows(page, `[${await guest.shell('uname -r')}]`, LIMIT_MS);
    await guest.shell('mkdir -p /root/garden && echo red >/root/garden/roses.txt');
    await showView(page, 'Files');
    await page.shows('garden', LIMIT_MS);
    expect(page.problems).toEqual([]);
    expect(page.received.join('\n')).not.toContain(String(guest.token));
  });
});
