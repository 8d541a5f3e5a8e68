import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type BrowserPage, Chromium } from '../../support/clients/chromium.ts';
import { needs } from '../../support/machine/needs.ts';
import { startGateway, type TestGateway } from '../../support/programs/gateway.ts';
import { owned } from '../../support/programs/owned.ts';

/*
 * A visitor's browser has a cookie for a private port. All sandboxes of a domain are one site for it, so it sends the cookie with what
 * a page of another sandbox asks for, too. Browsers treat hosts below `localhost` as they treat those that have TLS.
 */

const DOMAIN = 'sandboxes.localhost';
let gateway: TestGateway;
let server: Server;
let port: number;
/** What reached the private port, as method and URL. */
const seen: string[] = [];

beforeAll(async () => {
  gateway = await startGateway({ args: [`--domain=${DOMAIN}`] });
  server = createServer(({ method, url, headers }, response) => {
    if (headers.host?.includes('-shop.')) seen.push(`${method} ${url}`);
    response.setHeader('content-type', 'text/html').end(`<p>${headers.host}</p>`);
  });
  server.on('upgrade', ({ url, headers }, socket) => {
    if (headers.host?.includes('-shop.')) seen.push(`upgrade ${url}`);
    socket.end();
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  port = (server.address() as AddressInfo).port;
  await gateway.register('shop', 1, { timeout: 600, allowPublicTraffic: false, owner: 'ada' });
  await gateway.register('evil', 1, { timeout: 600, owner: 'eve' });
});

afterAll(async () => {
  server.closeAllConnections();
  server.close();
  await gateway[Symbol.asyncDispose]();
});

const originOf = (id: string) => `http://${port}-${id}.${DOMAIN}:${gateway.port}`;

/** Has a page ask for the private port in every way that sends cookies; resolves when all of it is over. */
const askFrom = (page: BrowserPage, name: string) =>
  page.evaluate(`(async () => {
    const to = ${JSON.stringify(`${originOf('shop')}/${name}`)};
    const framed = (element, begin) => new Promise((over) => {
      element.onload = element.onerror = over;
      begin();
    });
    const image = new Image();
    const script = document.createElement('script');
    const [frame, target] = [document.createElement('iframe'), document.createElement('iframe')];
    target.name = 'target';
    document.body.append(target);
    const form = document.createElement('form');
    Object.assign(form, { method: 'post', action: to + '-form', target: 'target' });
    document.body.append(form);
    await Promise.allSettled([
      fetch(to + '-get', { mode: 'no-cors', credentials: 'include' }),
      fetch(to + '-post', { mode: 'no-cors', credentials: 'include', method: 'POST', body: 'x' }),
      framed(image, () => { image.src = to + '-image'; }),
      framed(script, () => { script.src = to + '-script'; document.body.append(script); }),
      framed(frame, () => { frame.src = to + '-frame'; document.body.append(frame); }),
      framed(target, () => form.submit()),
      new Promise((over) => { new WebSocket(to.replace('http', 'ws') + '-socket').onclose = over; }),
    ]);
  })()`);

test('a page of another sandbox gets nothing by the cookie of a visitor, and the own page everything', async () => {
  needs('chromium');
  const browser = await owned(Promise.resolve(new Chromium()));
  const { body } = await gateway.call('POST /sandboxes/shop/previews', { port });
  const own = await browser.open(body.url);
  await own.until('the preview is open', `document.body.innerText.includes('-shop.')`);
  await askFrom(own, 'own');
  for (const what of ['GET /own-get', 'POST /own-post', 'GET /own-image', 'GET /own-frame', 'POST /own-form'])
    expect(seen).toContain(what);
  expect(seen).toContain('upgrade /own-socket');
  const other = await browser.open(originOf('evil'));
  await askFrom(other, 'other');
  expect(seen.filter((each) => each.includes('other'))).toEqual([]);
  // A link is what a visitor follows, and what it opens is of no use to the page that has it.
  await other.evaluate(`location.href = ${JSON.stringify(`${originOf('shop')}/followed`)}`);
  await other.until('the link is open', `document.body.innerText.includes('-shop.')`);
  expect(seen).toContain('GET /followed');
});
