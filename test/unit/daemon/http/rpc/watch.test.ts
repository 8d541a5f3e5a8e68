import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fromBinary, fromJsonString, toBinary, toJsonString } from '@bufbuild/protobuf';
import { expect, onTestFinished, test, vi } from 'vitest';
import { unaryCodecOf } from '../../../../../src/daemon/http/protocol/connect-unary.ts';
import { type WatchDependencies, watcherRpcs } from '../../../../../src/daemon/http/rpc/watch.ts';
import type { WatchEvent } from '../../../../../src/daemon/services/watch/local/event.ts';
import { GetWatcherEventsResponseSchema } from '../../../../../src/gen/filesystem/filesystem_pb.js';
import { callOf } from '../../../../support/clients/calls.ts';

vi.mock('@bufbuild/protobuf', async (importOriginal) => {
  const real = await importOriginal<typeof import('@bufbuild/protobuf')>();
  return { ...real, toBinary: vi.fn(real.toBinary), toJsonString: vi.fn(real.toJsonString) };
});

const MIB = 1024 * 1024;
const PART_EVENTS = 1024;

/** Serves GetWatcherEvents of a watch that has events without end. */
async function serveEvents() {
  let parts = 0;
  let isClosed = false;
  function* take() {
    const event: WatchEvent = { type: 'write', name: 'n'.repeat(200), path: '/n', movedFrom: null };
    try {
      for (;;) {
        parts++;
        yield Array.from({ length: PART_EVENTS }, () => event);
      }
    } finally {
      isClosed = true;
    }
  }
  const polled = { optionsOf: () => ({ includeEntry: false }), takeUpToNow: async () => take() };
  const rpc = watcherRpcs({ polled } as unknown as WatchDependencies).find(
    ({ method }) => method.name === 'GetWatcherEvents',
  );
  const server = createServer((request, response) => {
    void rpc?.serve?.(
      callOf(request, response),
      unaryCodecOf(request.headers['content-type'] ?? '') ?? 'json',
    );
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { url, parts: () => parts, isClosed: () => isClosed };
}

test.each([
  ['application/json', '{}', toJsonString],
  ['application/proto', '', toBinary],
])(
  'GetWatcherEvents in %s encodes each event once, and the next call gets what exceeds 4 MiB',
  async (type, body, encode) => {
    const { url, parts, isClosed } = await serveEvents();
    vi.mocked(toBinary).mockClear();
    vi.mocked(toJsonString).mockClear();
    const response = await fetch(url, { method: 'POST', headers: { 'content-type': type }, body });
    const bytes = Buffer.from(await response.arrayBuffer());
    const calls = [toBinary, toJsonString].map((each) => vi.mocked(each).mock.calls.length);
    expect(calls).toEqual([toBinary, toJsonString].map((each) => (each === encode ? parts() : 0)));
    const { events } =
      encode === toBinary
        ? fromBinary(GetWatcherEventsResponseSchema, bytes)
        : fromJsonString(GetWatcherEventsResponseSchema, String(bytes));
    expect(events.length).toBe(parts() * PART_EVENTS);
    expect(bytes.length).toBeGreaterThan(4 * MIB);
    expect(bytes.length).toBeLessThan(5 * MIB);
    expect(isClosed()).toBe(true);
  },
);
