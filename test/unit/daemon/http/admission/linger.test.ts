import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { expect, test, vi } from 'vitest';
import { endUnlessComplete } from '../../../../../src/daemon/http/admission/linger.ts';
import { until } from '../../../../support/until.ts';

test('a request that does not end is destroyed at the limit, and no timer is left', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  const closed = Promise.withResolvers<void>();
  const server = createServer((request, response) => {
    response.once('close', () => endUnlessComplete(request, { milliseconds: 0, bytes: 1 }));
    request.once('close', () => closed.resolve());
    response.end('refused');
  });
  try {
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const timers = vi.getTimerCount();
    const client = connect((server.address() as AddressInfo).port, '127.0.0.1');
    client.write('POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\n');
    await once(client, 'data');
    await until('the limit is set', () => vi.getTimerCount() === timers + 1);
    vi.advanceTimersByTime(1000);
    await Promise.all([closed.promise, once(client, 'close')]);
    expect(vi.getTimerCount()).toBe(timers);
  } finally {
    vi.useRealTimers();
    server.close();
  }
});
