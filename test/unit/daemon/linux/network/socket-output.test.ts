import { fstatSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { afterEach, expect, onTestFinished, test, vi } from 'vitest';
import type { OpenFile } from '../../../../../src/daemon/linux/files/open-file.ts';
import { SocketOutput } from '../../../../../src/daemon/linux/network/socket-output.ts';
import { native } from '../../../../../src/daemon/linux/system/native.ts';

afterEach(() => void vi.restoreAllMocks());

async function responseOfAConnection(): Promise<ServerResponse> {
  const { promise, resolve } = Promise.withResolvers<ServerResponse>();
  const server = createServer((_request, response) => resolve(response)).listen(0, '127.0.0.1');
  await new Promise((listening) => server.once('listening', listening));
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  socket.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n');
  onTestFinished(() => {
    socket.destroy();
    server.close();
  });
  return promise;
}

test('the connection stays open while a job lasts whose caller has given up', async () => {
  const job = Promise.withResolvers<number>();
  const used: number[] = [];
  vi.spyOn(native, 'sendFile').mockImplementation((socket) => {
    used.push(socket);
    return job.promise;
  });
  const file = {
    fd: 0,
    run: (start: () => Promise<number>) => {
      void start();
      return Promise.reject(new Error('no answer'));
    },
  } as unknown as OpenFile;
  const output = SocketOutput.of(await responseOfAConnection());
  await expect(output?.send(file, 0, 1, new AbortController().signal)).rejects.toThrow('no answer');
  output?.[Symbol.dispose]();
  await new Promise(setImmediate);
  const [descriptor = -1] = used;
  expect(fstatSync(descriptor).isSocket()).toBe(true);
  job.resolve(1);
  await new Promise(setImmediate);
  expect(() => fstatSync(descriptor)).toThrow('EBADF');
});
