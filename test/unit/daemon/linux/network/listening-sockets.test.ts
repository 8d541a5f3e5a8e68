import { once } from 'node:events';
import { mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { afterAll, afterEach, expect, onTestFinished, test, vi } from 'vitest';
import {
  eachListeningSocket,
  readListeningSockets,
} from '../../../../../src/daemon/linux/network/listening-sockets.ts';
import { native } from '../../../../../src/daemon/linux/system/native.ts';

const directory = mkdtempSync(join(tmpdir(), 'envd-sockets-'));
afterAll(() => rmSync(directory, { recursive: true }));
afterEach(() => void vi.restoreAllMocks());

/** Of the request, struct nlmsghdr with struct inet_diag_req_v2. */
const REQUEST = 72;
const [NLMSG_ERROR, NLMSG_DONE] = [2, 3];

/** A descriptor that takes a request and gives this message of the kernel: type, and a number behind the header. */
function answering(type: number, value: number): number {
  const message = Buffer.from(Int32Array.of(20, type, 0, 0, value).buffer);
  const file = join(directory, 'answer');
  writeFileSync(file, Buffer.concat([Buffer.alloc(REQUEST), message]));
  return openSync(file, 'r+');
}

const unknown = () => answering(NLMSG_ERROR, -constants.errno.ENOENT);
const nothing = () => answering(NLMSG_DONE, 0);

test('a kernel without CONFIG_INET_DIAG does not pass for one on which nothing listens', async () => {
  vi.spyOn(native, 'openSocketDiagnosis').mockImplementation(unknown);
  await expect(readListeningSockets('127.0.0.1')).rejects.toThrow(
    'ENOENT: sock_diag, which needs CONFIG_INET_DIAG',
  );
});

test('a kernel without IPv6 tells what listens at addresses of IPv4', async () => {
  vi.spyOn(native, 'openSocketDiagnosis').mockImplementationOnce(nothing).mockImplementationOnce(unknown);
  expect(await readListeningSockets('127.0.0.1')).toEqual(new Map());
});

test.each([
  ['127.0.0.1', '127.0.0.1'],
  ['0.0.0.0', 'any address'],
  ['127.0.0.2', 'this address'],
])('a listener at %s is found with its port, place and owner', async (address, place) => {
  const server = createServer().listen(0, address);
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const found: unknown[] = [];
  eachListeningSocket(await readListeningSockets('127.0.0.2'), (...each) => found.push(each));
  expect(found).toContainEqual([port, place, process.geteuid?.(), expect.any(Number)]);
});
