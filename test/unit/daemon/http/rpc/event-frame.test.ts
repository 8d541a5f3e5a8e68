import { create } from '@bufbuild/protobuf';
import { expect, test } from 'vitest';
import { encodeFrame } from '../../../../../src/daemon/http/connect/codec.ts';
import { jsonFrame } from '../../../../../src/daemon/http/rpc/event-frame.ts';
import { eventMessage } from '../../../../../src/daemon/http/rpc/process-messages.ts';
import {
  type EndReason,
  endEvent,
  type ProcessEvent,
} from '../../../../../src/daemon/services/process/output/events.ts';
import { StartResponseSchema } from '../../../../../src/gen/process/process_pb.js';

const EXIT = { code: 0, signal: null, userMicros: 0, systemMicros: 0, maxRssKib: 0 };
const TREE = { cpu: null, outOfMemory: true, peakMemoryBytes: 0 };
const end = endEvent(EXIT, false, null);
const reasons: readonly EndReason[] = ['exited', 'signaled', 'deadline', 'out of memory', 'unknown'];

test.each<ProcessEvent>([
  { type: 'start', pid: 4_294_967_295, offsets: null },
  end,
  endEvent({ ...EXIT, code: 7, userMicros: 1234, systemMicros: 9_007_199_254_740_991 }, false, TREE),
  endEvent({ ...EXIT, code: null, signal: 9 }, false, TREE),
  endEvent({ ...EXIT, code: null, signal: 38 }, true, null),
  { ...end, status: '', error: '"\n\u2028ü' },
  ...reasons.map((reason) => ({ ...end, reason })),
])('%o has the frame that the general encoder makes', (event) => {
  const message = create(StartResponseSchema, { event: eventMessage(event) });
  expect(jsonFrame(event)).toEqual(encodeFrame(StartResponseSchema, message, 'json'));
});

test('other events are left to the general encoder', () => {
  const offsets = { stdout: 1, stderr: 0, pty: 0 };
  expect(jsonFrame({ type: 'start', pid: 1, offsets })).toBeNull();
  expect(jsonFrame({ type: 'gap', from: offsets, to: offsets })).toBeNull();
});
