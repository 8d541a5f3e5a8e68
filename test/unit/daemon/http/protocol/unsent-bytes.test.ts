import { EventEmitter, once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { expect, test, vi } from 'vitest';
import { Quota } from '../../../../../src/base/quota.ts';
import { UnsentBytes } from '../../../../../src/daemon/http/protocol/unsent-bytes.ts';

test('what waits for a client counts until it is taken, or the client goes', async () => {
  const unread = new Quota(1000);
  const served = Promise.withResolvers<ServerResponse>();
  const server = createServer((_, response) => served.resolve(response));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1');
  client.write('GET / HTTP/1.1\r\nHost: test\r\n\r\n');
  const response = await served.promise;
  const sending = new UnsentBytes(response, unread);
  sending.wait(100);
  expect(unread.sum).toBe(100);
  sending.taken();
  expect(unread.sum).toBe(0);
  sending.wait(200);
  sending.wait(300);
  const closed = once(response, 'close');
  client.destroy();
  await closed;
  expect(unread.sum).toBe(0);
  expect(response.listenerCount('close')).toBe(0);
  server.close();
});

/** A socket with the timeout of Node's: when bytes were taken since it last looked, it starts the time again instead of telling. */
class Quiet extends EventEmitter {
  #taken = 0;
  #seen = -1;
  #timer: NodeJS.Timeout | undefined;

  take(): void {
    this.#taken++;
  }

  setTimeout(milliseconds: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      const isQuiet = this.#taken === this.#seen;
      this.#seen = this.#taken;
      if (isQuiet) this.emit('timeout');
      else this.setTimeout(milliseconds);
    }, milliseconds);
  }

  destroy(): void {}
}

test('a client stalls when it has taken nothing for 5 s, and not while it takes something', () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'hrtime'] });
  try {
    const socket = new Quiet();
    const sending = new UnsentBytes(socket, new Quota(1000));
    const stalled = vi.fn();
    sending.onStall(stalled);
    sending.wait(100);
    for (let round = 0; round < 5; round++) {
      vi.advanceTimersByTime(4000);
      socket.take();
    }
    vi.advanceTimersByTime(4900);
    expect(stalled).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1100);
    expect(stalled).toHaveBeenCalled();
    // What was silent before counts no more when further bytes wait.
    sending.taken();
    vi.advanceTimersByTime(100);
    sending.wait(100);
    socket.setTimeout(500);
    stalled.mockClear();
    vi.advanceTimersByTime(4900);
    expect(stalled).not.toHaveBeenCalled();
  } finally {
    vi.useRealTimers();
  }
});
