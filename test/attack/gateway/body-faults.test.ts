import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { faultCases, sampled } from '../../support/attackers/fault-cases.ts';
import { openFiles } from '../../support/machine/proc.ts';
import { startGateway, type TestGateway, toSandbox } from '../../support/programs/gateway.ts';
import { startRelay } from '../../support/servers/relay.ts';
import { until } from '../../support/until.ts';

/*
 * A gateway reaches a service by a relay that spoils one piece of what it passes on. A body is whole or its end is an error; nothing
 * of one exchange comes in another; nothing is left open.
 */

/** Pieces of each side: those of a head and of the beginning of a body. */
const PIECES = 3;
/** How many requests show that the connections behind a fault are in step. */
const AFTERWARDS = 4;
const LARGE = randomBytes(700_000);
/** Faults behind which nothing comes. */
const CUTS: readonly string[] = ['cut', 'reset', 'stall'];
const TIMEOUT = { timeout: 3_600_000 };

const hashOf = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');
const sockets = ({ pid }: TestGateway) => openFiles(pid).filter((name) => name.startsWith('socket:')).length;

async function startService() {
  const server = createServer(async (request, response) => {
    const { method, url = '' } = request;
    const sent = await buffer(request).catch(() => Buffer.alloc(0));
    if (url === '/large') response.setHeader('content-length', LARGE.length).end(LARGE);
    else if (url === '/chunked') {
      for (let at = 0; at < LARGE.length; at += 100_000) response.write(LARGE.subarray(at, at + 100_000));
      response.end();
    } else response.end(method === 'POST' ? hashOf(sent) : url);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    [Symbol.dispose]() {
      server.closeAllConnections();
      server.close();
    },
  };
}

const EXCHANGES: Readonly<
  Record<string, { readonly path: string; readonly body?: Uint8Array<ArrayBuffer>; readonly wanted: Buffer }>
> = {
  small: { path: '/small', wanted: Buffer.from('/small') },
  'a length': { path: '/large', wanted: LARGE },
  chunks: { path: '/chunked', wanted: LARGE },
  upload: { path: '/upload', body: new Uint8Array(LARGE), wanted: Buffer.from(hashOf(LARGE)) },
};

test.each(Object.keys(EXCHANGES))('faults of the connection to a service: %s', TIMEOUT, async (name) => {
  const { path, body, wanted } = EXCHANGES[name] ?? expect.unreachable();
  using service = await startService();
  await using relay = await startRelay(service.port);
  await using gateway = await startGateway({ args: ['--response-timeout=2'] });
  await gateway.register('one', relay.port, { timeout: 3600 });
  const ask = async (to: string, sent?: Uint8Array<ArrayBuffer>) => {
    const init = { headers: toSandbox('one'), ...(sent !== undefined && { method: 'POST', body: sent }) };
    const response = await fetch(gateway.url + to, init);
    return { status: response.status, bytes: Buffer.from(await response.arrayBuffer()) };
  };
  await ask('/warm');
  const before = sockets(gateway);
  for (const [index, fault] of sampled(faultCases(PIECES), name).entries()) {
    const what = JSON.stringify(fault);
    using injected = relay.inject(fault);
    const asked = ask(path, body).catch(() => null);
    await Promise.race([asked, until(`${what} happens`, () => injected.hasFired)]);
    if (fault.kind === 'stall') relay.reset();
    const answer = await asked;
    injected[Symbol.dispose]();
    const isWhole = answer?.status === 200 && answer.bytes.equals(wanted);
    if (fault.kind === 'delay') expect(isWhole, what).toBe(true);
    // What was repeated or changed on its way may be what it has become.
    else if (CUTS.includes(fault.kind)) expect(isWhole || answer?.status !== 200, what).toBe(true);
    // The answer that comes twice may come when the next one is waited for, and no proxy could tell.
    if (fault.kind === 'repeat' && fault.from === 'server') relay.reset();
    for (let each = 0; each < AFTERWARDS; each++) {
      const again = await ask(`/again-${index}-${each}`);
      expect([again.status, String(again.bytes)], what).toEqual([200, `/again-${index}-${each}`]);
    }
  }
  await until(
    'no socket is left',
    () => sockets(gateway),
    (count) => count <= before,
  );
  expect(gateway.log.filter(({ level }) => level >= 50)).toEqual([]);
});
