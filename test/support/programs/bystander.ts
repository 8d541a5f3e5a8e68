import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { expect } from 'vitest';
import { type TestGateway, toSandbox } from './gateway.ts';

/**
 * Another tenant, with a sandbox of its own and a connection that stays open: attacks on the gateway must not affect
 * it.
 */
export class Bystander implements AsyncDisposable {
  readonly #gateway: TestGateway;
  readonly #server = createServer((request, response) => request.pipe(response));
  #socket: Socket | null = null;
  #calls = 0;

  private constructor(gateway: TestGateway) {
    this.#gateway = gateway;
    this.#server.on('upgrade', (_request, socket) => {
      socket.on('error', () => {});
      socket.write('HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n');
      socket.pipe(socket);
    });
  }

  static async of(gateway: TestGateway): Promise<Bystander> {
    const bystander = new Bystander(gateway);
    await bystander.#settle();
    return bystander;
  }

  async #settle(): Promise<void> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    await this.#gateway.register('bystander', (this.#server.address() as AddressInfo).port, {
      timeout: 3600,
    });
    this.#socket = connect(this.#gateway.port, '127.0.0.1');
    this.#socket.write(
      'GET / HTTP/1.1\r\nhost: a\r\nsvc-sandbox-id: bystander\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n',
    );
    expect(String((await once(this.#socket, 'data'))[0])).toMatch(/^HTTP\/1\.1 101 /);
  }

  /** Throws unless this tenant is served, also over its first connection. */
  async isServed(): Promise<void> {
    const words = `call ${++this.#calls}`;
    const response = await fetch(this.#gateway.url, {
      method: 'POST',
      headers: toSandbox('bystander'),
      body: words,
    });
    expect([response.status, await response.text()]).toEqual([200, words]);
    const socket = this.#socket ?? expect.unreachable();
    const [echoed] = await Promise.all([once(socket, 'data'), socket.write(words)]);
    expect(String(echoed[0])).toBe(words);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#socket?.destroy();
    this.#server.closeAllConnections();
    this.#server.close();
  }
}
