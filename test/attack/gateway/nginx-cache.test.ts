import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { scratch } from '../../support/machine/scratch.ts';
import { startGateway, type TestGateway, toSandbox } from '../../support/programs/gateway.ts';
import { exchange, message } from '../../support/programs/raw-sandbox.ts';
import { type Nginx, startNginx } from '../../support/servers/nginx.ts';
import { type Relay, startRelay } from '../../support/servers/relay.ts';

/** What docs/gateway.md promises for requests behind nginx, in ms. */
const BOUND_MS = 1000;

let gateway: TestGateway;
let relay: Relay;
let nginx: Nginx;
let asked = 0;
const servers: Server[] = [];
const last: { headers: IncomingHttpHeaders } = { headers: {} };

/** A service in a sandbox that answers with its name. */
async function service(name: string): Promise<number> {
  const server = createServer(({ url, headers }, response) => {
    // Not of the gateway, which freezes what has expired.
    if (url === '/a/b') last.headers = headers;
    response.end(name);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  servers.push(server);
  return (server.address() as AddressInfo).port;
}

let [one, mine, plain] = [0, 0, 0];

describe.each([
  ['nginx alone', false],
  ['nginx with Lua', true],
] as const)('%s', (_name, keeps) => {
  beforeAll(async () => {
    [one, mine, plain] = [await service('one'), await service('mine'), await service('mine')];
    gateway = await startGateway();
    relay = await startRelay(gateway.port, (data) => {
      asked += data.toString('latin1').split('GET /gateway/route').length - 1;
    });
    nginx = await startNginx(relay.port, { keeps });
    await gateway.register('one', one, { timeout: 3600 });
    await gateway.register('mine', mine, { timeout: 3600 });
  });

  afterAll(async () => {
    for (const each of servers) each.closeAllConnections();
    for (const each of servers) each.close();
    for (const each of [nginx, relay, gateway]) await each[Symbol.asyncDispose]();
  });

  async function reach(id: string, path = '/a/b', headers = {}, port = nginx.port): Promise<string> {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, {
      headers: { ...toSandbox(id), ...headers },
    });
    const text = await response.text();
    return response.ok ? text : String(response.status);
  }

  test('the gateway is asked twice a second, not for each request, and for the same paths once', async () => {
    const started = performance.now();
    asked = 0;
    for (let index = 0; index < 200; index++)
      expect(await reach('one', `/a.b/C${index}?path=${index}`)).toBe('one');
    for (let index = 0; index < 200; index++) expect(await reach('one', `/files?path=${index}`)).toBe('one');
    expect(asked).toBeGreaterThan(0);
    expect(asked).toBeLessThan(4 + (2 * (performance.now() - started)) / 500);
  });

  test('a sandbox that is removed, or moved, is not reached any more in time', async () => {
    for (const change of ['removed', 'moved'] as const) {
      await gateway.register('brief', one, { timeout: 3600 });
      let reached = 0;
      let over = false;
      const load = Array.from({ length: 4 }, async () => {
        while (!over) {
          const began = performance.now();
          if ((await reach('brief')) === 'one') reached = Math.max(reached, began);
        }
      });
      expect(await reach('brief')).toBe('one');
      if (change === 'removed') await gateway.call('DELETE /sandboxes/brief');
      else await gateway.register('brief', mine, { timeout: 3600 });
      const changed = performance.now();
      await delay(2 * BOUND_MS);
      over = true;
      await Promise.all(load);
      expect(reached - changed).toBeLessThan(BOUND_MS);
      expect(await reach('brief')).toBe(change === 'removed' ? '502' : 'mine');
    }
  });

  test('a deadline counts at once', async () => {
    const { body } = await gateway.register('short', one, { timeout: 2 });
    const deadline = Date.parse(body.endAt);
    let reached = 0;
    while (Date.now() < deadline + BOUND_MS) {
      const began = Date.now();
      if ((await reach('short')) === 'one') reached = began;
    }
    expect(reached).toBeGreaterThan(deadline - BOUND_MS);
    // Both clocks are that of this machine.
    expect(reached).toBeLessThan(deadline + 50);
  });

  /** The same, with exactly these headers: the last line of the answer, or its status. */
  async function reachRaw(target: string, ...lines: readonly string[]): Promise<string> {
    const bytes = message([`GET ${target} HTTP/1.1`, 'host: a', 'connection: close', ...lines]);
    const answer = await exchange(nginx.port, bytes);
    const [, status = ''] = /^HTTP\/1\.1 (\d+) /.exec(answer) ?? [];
    return status === '200' ? (/(one|mine)/.exec(answer.split('\r\n\r\n')[1] ?? '')?.[1] ?? '') : status;
  }

  test('no request puts the route of another sandbox into the place of one', async () => {
    const forged = [
      ['Svc_Sandbox_Id: one', 'Svc-Sandbox-Id: mine'],
      ['Svc-Sandbox-Id: mine', 'Svc_Sandbox_Id: one'],
      ['Svc-Sandbox-Id: one', 'Svc-Sandbox-Id: mine'],
      ['Svc-Sandbox-Id: mine', 'Svc-Sandbox-Id: one'],
      ['Svc_Sandbox_Port: 49983', `Svc-Sandbox-Port: ${plain}`, 'Svc-Sandbox-Id: one'],
      [`Svc-Sandbox-Port: ${plain}`, 'Svc-Sandbox-Port: 49983', 'Svc-Sandbox-Id: one'],
      ['X-Original-Host: x', 'X-Original-URI: /a/b', 'X-Gateway-Key: x', 'Svc-Sandbox-Id: mine'],
    ];
    for (let round = 0; round < 4; round++) {
      for (const lines of forged) {
        // Each on a path of its own, so that nothing is known before.
        const path = `/forged-${round}-${forged.indexOf(lines)}`;
        const answers = await Promise.all([reachRaw(path, ...lines), reachRaw(path, ...lines)]);
        for (const answer of answers) expect(answer).toMatch(/^(one|mine|4\d\d|502)$/);
        expect(await reachRaw(path, 'Svc-Sandbox-Id: one')).toBe('one');
        expect(await reachRaw(path, 'Svc-Sandbox-Id: one', 'Svc-Sandbox-Port: 49983')).toBe('one');
        expect(await reachRaw(path, 'Svc-Sandbox-Id: mine')).toBe('mine');
      }
    }
  });

  test('closed operations stay closed beside paths that are known to be open', async () => {
    const spellings = [
      ...['/init', '/INIT', '/init/', '//init', '/a/../init', '/a/b/../../init', '/./init', '/-/../init'],
      ...['/a/..%2finit', '/a/%2e%2e/init', '/x/..;/init', '/init;/x/..', '/a/b/..\\..\\init', '/init?/a/b'],
      ...[
        '/a%2f..%2finit',
        '/a/b%2f..%2f..%2finit',
        '/_/..;a=b/init',
        '/init%3f/a/b',
        '/init%23/a/b',
        '/a/.%2e/init',
      ],
    ];
    for (const target of spellings) {
      for (const key of ['', 'x-api-key: \t/a', 'x-api-key: a\\n/a']) {
        const lines = ['svc-sandbox-id: one', ...(key ? [key] : [])];
        expect(await reachRaw('/a/b', ...lines)).toBe('one');
        expect(await reachRaw(target, ...lines)).toMatch(/^40[03]$/);
      }
    }
  });

  test('what one key opens is closed to others', async () => {
    const file = join(scratch(), 'keys');
    writeFileSync(file, 'platform p\nclient ada a\nclient bob b\n');
    const own = await startGateway({ args: [`--key-file=${file}`, '--require-key'] });
    onTestFinished(() => own[Symbol.asyncDispose]());
    const front = await startNginx(own.port, { keeps });
    onTestFinished(() => front[Symbol.asyncDispose]());
    await own.register('one', one, { timeout: 3600, owner: 'ada' });
    for (let round = 0; round < 5; round++) {
      for (const [key, result] of [
        ['a', 'one'],
        ['b', '502'],
        ['', '401'],
        ['a b', '401'],
        ['p', 'one'],
      ] as const)
        expect(await reach('one', '/a/b', key ? { 'x-api-key': key } : {}, front.port)).toBe(result);
      // Of the platform alone.
      expect(await reach('one', '/init', { 'x-api-key': 'p' }, front.port)).toBe('one');
      expect(await reach('one', '/init', { 'x-api-key': 'a' }, front.port)).toBe('403');
    }
  });

  test('what is carried without a question has the same headers, and its own id', async () => {
    const [first, ids] = [{}, new Set()];
    for (let count = 1; count <= 20; count++) {
      expect(await reach('one', '/a/b', { 'x-api-key': 'of the sandbox' })).toBe('one');
      const { 'x-request-id': id, ...headers } = last.headers;
      if (count === 1) Object.assign(first, headers);
      expect(headers).toEqual(first);
      expect(ids.add(id).size, String(id)).toBe(count);
    }
    expect(first).toMatchObject({ 'x-api-key': 'of the sandbox', via: expect.stringMatching(/envd-/) });
  });

  test('a request that goes round is seen, though its route is known', async () => {
    expect(await reach('one')).toBe('one');
    const { via } = last.headers;
    expect(via).toMatch(/envd-/);
    expect(await reach('one', '/a/b', { via })).toBe('508');
    expect(await reach('one')).toBe('one');
  });

  test('nothing is kept of what refused, and nothing for a key made of other headers', async () => {
    expect(await reach('later')).toBe('502');
    await gateway.register('later', one, { timeout: 3600 });
    expect(await reach('later')).toBe('one');
    const ask = (query: string, more = {}) =>
      gateway.call(`GET /gateway/route?uri-header=x-uri${query}`, undefined, {
        ...{ 'x-gateway-key': 'the-key-of-the-platform', 'x-uri': '/a/b', ...toSandbox('one'), ...more },
      });
    const keeps = async (...question: Parameters<typeof ask>) => {
      const { headers } = await ask(...question);
      return [headers.get('x-accel-expires'), headers.get('cache-control')];
    };
    expect(await keeps('&cached-by=Svc-Sandbox-Id')).toEqual(['1', null]);
    for (const [query, more] of [
      ['', {}],
      ['&cached-by=E2b-Sandbox-Id', {}],
      ['&cached-by=Svc-Sandbox-Id', { via: '1.1 a' }],
      ['&cached-by=Svc-Sandbox-Id&refusal=pass', toSandbox('unknown')],
    ] as const)
      expect(await keeps(query, more)).toEqual([null, 'no-store']);
  });
});
