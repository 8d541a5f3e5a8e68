import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { connect } from 'node:net';
import { expect, onTestFinished, test, vi } from 'vitest';
import { Connections } from '../../../src/base/connections.ts';
import { rehearse } from '../../../src/daemon/rehearsal.ts';

const never = new AbortController().signal;
const caller = { token: 'x', prefix: 'svc', initMembers: [] };
const nobody = { caller, asResumed: async () => {}, besides: async () => {}, kill: async () => {} };

/** A server, not listening, and the requests that it has got. */
function recorder(onRequest = () => {}) {
  const requests: string[] = [];
  const connections = new Connections(100);
  const server = createServer((request, response) => {
    requests.push(`${request.method} ${request.url?.split('?')[0]}`);
    onRequest();
    response.end();
  });
  connections.guard(server);
  return { server, requests, connections };
}

async function listening(server: Server): Promise<AsyncDisposable> {
  server.listen(0, '0.0.0.0');
  await once(server, 'listening');
  return { [Symbol.asyncDispose]: async () => void server.close().closeAllConnections() };
}

test('calls come over connections to the daemon, and only the understudy serves them', async () => {
  const daemon = recorder();
  await using _ = await listening(daemon.server);
  const second = recorder();
  let killed = 0;
  let besides = 0;
  let rounds = 0;
  const understudy = {
    ...{ server: second.server, caller },
    asResumed: async () => void rounds++,
    besides: async () => void besides++,
    kill: async () => void killed++,
  };
  await rehearse(daemon.server, daemon.connections, understudy, false, never);
  const called = ['/init', '/process.Process/Start', '/filesystem.Filesystem/Stat'].map(
    (path) => `POST ${path}`,
  );
  expect(second.requests.slice(0, 5)).toEqual(['GET /health', ...called, 'GET /files']);
  expect([daemon.requests, daemon.connections.open, killed, besides]).toEqual([[], 0, 1, 4]);
  expect(rounds).toBe(second.requests.length / 5);
  const before = rounds;
  await rehearse(daemon.server, daemon.connections, understudy, true, never);
  expect([rounds - before, besides]).toEqual([before / 2, 6]);
});

test('the daemon itself serves everyone else meanwhile, also from the same port of another address', async () => {
  const daemon = recorder();
  await using _ = await listening(daemon.server);
  const { port } = daemon.server.address() as { port: number };
  const replies: string[] = [];
  const others: Promise<void>[] = [];
  const other = async () => {
    const stranger = connect({ port, host: '127.0.0.1', localAddress: '127.0.0.9' });
    stranger.end('GET /stranger HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n');
    for await (const piece of stranger) replies.push(String(piece).slice(0, 12));
  };
  const second = recorder(() => others.push(other()));
  const understudy = { ...nobody, server: second.server };
  await rehearse(daemon.server, daemon.connections, understudy, false, never);
  await Promise.all(others);
  expect(second.requests).not.toContain('GET /stranger');
  expect(daemon.requests.length).toBe(second.requests.length);
  expect(new Set(replies)).toEqual(new Set(['HTTP/1.1 200']));
});

test('leaves no timer behind, which would expire after the resume', async () => {
  const daemon = recorder();
  await using _ = await listening(daemon.server);
  const second = recorder();
  const timersOf = () => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
  const before = timersOf();
  const limits = vi.spyOn(AbortSignal, 'timeout');
  await rehearse(daemon.server, daemon.connections, { ...nobody, server: second.server }, false, never);
  expect(second.requests.length).toBeGreaterThan(0);
  // Timers of `AbortSignal.timeout` keep nothing active: they are in no list.
  expect(limits).not.toHaveBeenCalled();
  expect(timersOf()).toBeLessThanOrEqual(before);
});

test('does nothing when the daemon does not listen', async () => {
  const { server, connections } = recorder();
  const second = recorder();
  await rehearse(server, connections, { ...nobody, server: second.server }, false, never);
  expect(second.requests).toEqual([]);
});

test('ends without an error on a time-out, and when the caller disconnects', async () => {
  const daemon = recorder();
  await using _ = await listening(daemon.server);
  const silent = createServer(() => {});
  const understudy = { ...nobody, server: silent };
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  onTestFinished(() => void vi.useRealTimers());
  silent.once('request', () => vi.advanceTimersByTime(1000));
  await rehearse(daemon.server, daemon.connections, understudy, false, never);

  const client = new AbortController();
  silent.once('request', () => client.abort());
  await rehearse(daemon.server, daemon.connections, understudy, false, client.signal);
  expect(daemon.connections.divert).toBeNull();
});
