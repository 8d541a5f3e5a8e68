import { once } from 'node:events';
import { connect } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

/* Clients that go on sending after their body was refused: the daemon does not read it for ever, but closes the connection. */

const MIB = 1024 * 1024;
/** Above the largest limit of a body, and what may follow its answer, and what two kernels keep. */
const MOST = 128 * MIB;

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon[Symbol.asyncDispose]());

const PART = '--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n\r\n';

test.each([
  ['an RPC', '/filesystem.Filesystem/Stat', 'application/json', 'x'],
  ['a form with too many parts', '/files', 'multipart/form-data; boundary=b', PART],
  ['a command', '/exec', 'application/json', 'x'],
  ['an upload with an unknown digest', '/files?path=/tmp/x&durable=never', 'application/octet-stream', 'x'],
  ['an unknown operation', '/none', 'text/plain', 'x'],
])('the body of %s is not read on after the answer', async (_name, path, type, filling) => {
  const socket = connect(daemon.port, '127.0.0.1').on('error', () => {});
  const closed = new Promise((resolve) => socket.once('close', resolve));
  let answer = '';
  socket.on('data', (bytes) => {
    answer += bytes.toString('latin1');
  });
  await once(socket, 'connect');
  socket.write(
    `POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Type: ${type}\r\nContent-Length: ${1024 * MIB}\r\n\r\n`,
  );
  const piece = Buffer.from(filling.repeat(MIB / filling.length));
  let sent = 0;
  // The daemon looks at the bytes from time to time, so a client that is as fast as this machine would measure the machine.
  const pouring = setInterval(() => {
    if (sent >= 2 * MOST || socket.writableNeedDrain) return;
    sent += piece.length;
    socket.write(piece);
  }, 10);
  await closed;
  clearInterval(pouring);
  expect(answer).toMatch(/^HTTP\/1\.1 4\d\d /);
  expect(sent).toBeLessThan(MOST);
});
