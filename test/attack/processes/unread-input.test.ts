import { create, toBinary } from '@bufbuild/protobuf';
import { expect, onTestFinished, test } from 'vitest';
import { SendInputRequestSchema, StreamInputRequestSchema } from '../../../src/gen/process/process_pb.js';
import { byPid, connectTo } from '../../support/clients/clients.ts';
import { memoryOf } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { daemonCommand } from '../../support/programs/programs.ts';

/* Clients send input that nobody reads: what the daemon keeps of it is bounded by its bytes. */

const MIB = 1024 * 1024;
const stdin = (value: Uint8Array) => ({ input: { case: 'stdin' as const, value } });

/** Starts a process that does not read, and fills its pipe. Returns its pid. */
async function startWithFullPipe(daemon: TestDaemon): Promise<number> {
  const { process } = connectTo(daemon.url);
  const leaving = new AbortController();
  onTestFinished(() => leaving.abort());
  const events = process.start(
    { process: { cmd: 'sleep', args: ['1000'] }, stdin: true },
    { signal: leaving.signal },
  );
  const { value } = await events[Symbol.asyncIterator]().next();
  const { pid } = (value?.event?.event.value ?? {}) as { pid: number };
  await process.sendInput({ process: byPid(pid), input: stdin(Buffer.alloc(MIB / 4)) });
  return pid;
}

/** Sends a body to an RPC that takes input. */
async function post(daemon: TestDaemon, method: string, type: string, body: Buffer): Promise<string> {
  const headers = { 'content-type': `application/${type}`, 'connect-protocol-version': '1' };
  const response = await fetch(`${daemon.url}/process.Process/${method}`, { method: 'POST', headers, body });
  return await response.text();
}

test('a byte of input does not keep the message that it came in', async () => {
  await using daemon = await startDaemon();
  const pid = await startWithFullPipe(daemon);
  const request = { process: byPid(pid), input: stdin(Buffer.of(1)) };
  const rest = Buffer.alloc(16 * MIB);
  // An unknown field, 1000, with the rest of the message.
  rest.set([0xc2, 0x3e, ...varint(rest.length - 6)]);
  const body = Buffer.concat([
    toBinary(SendInputRequestSchema, create(SendInputRequestSchema, request)),
    rest,
  ]);
  expect(await post(daemon, 'SendInput', 'proto', body)).toBe('');
  const { now } = memoryOf(daemon.pid);
  for (let count = 0; count < 24; count++) await post(daemon, 'SendInput', 'proto', body);
  expect(memoryOf(daemon.pid).now - now).toBeLessThan(150 * MIB);
});

test('many messages of a byte take little more memory than their bytes', async () => {
  await using daemon = await startDaemon({ command: daemonCommand(['--max-old-space-size=96']) });
  const pid = await startWithFullPipe(daemon);
  const frame = (event: object) => {
    const message = toBinary(StreamInputRequestSchema, create(StreamInputRequestSchema, { event } as never));
    const head = Buffer.alloc(5);
    head.writeUInt32BE(message.length, 1);
    return Buffer.concat([head, message]);
  };
  const start = frame({ case: 'start', value: { process: byPid(pid) } });
  const data = frame({ case: 'data', value: { input: stdin(Buffer.of(1)) } });
  const frames = Buffer.concat([start, ...Array.from({ length: 400_000 }, () => data)]);
  // As objects they would take more than the daemon has.
  expect(await post(daemon, 'StreamInput', 'connect+proto', frames)).toContain('{}');
});

function varint(value: number): number[] {
  return [0, 7, 14, 21].map((shift) => ((value >>> shift) & 0x7f) | (shift < 21 ? 0x80 : 0));
}
