import { expect, test } from 'vitest';
import { requireSimple } from '../../../../../src/daemon/http/protocol/complexity.ts';
import { StartRequestSchema } from '../../../../../src/gen/process/process_pb.js';

const MEMBERS = 16 * 1024;
const ELEMENTS = 256 * 1024;

const count = (text: string) => requireSimple(StartRequestSchema, Buffer.from(text), 'json');
const REFUSED = expect.objectContaining({ kind: 'resource_exhausted' });

/** An object with names that end with a quote behind this text. */
const membersNamed = (name: string, members: number) =>
  `{${Array.from({ length: members }, (_, index) => `"${name}${index}${name}":0`).join(',')}}`;

test.each(['name', '\\\\', '\\"', '\\\\\\"'])('members count whatever is in their names: %s', (name) => {
  expect(() => count(membersNamed(name, MEMBERS + 1))).toThrow(REFUSED);
  expect(() => count(membersNamed(name, MEMBERS - 1))).not.toThrow();
});

test('what is in a string counts no member, and escaped quotes count as elements', () => {
  expect(() => count(`"${'{a:['.repeat(MEMBERS)}"`)).not.toThrow();
  expect(() => count(`"${'\\"'.repeat(ELEMENTS - 2)}"`)).not.toThrow();
  expect(() => count(`"${'\\"'.repeat(ELEMENTS + 1)}"`)).toThrow(REFUSED);
  expect(() => count(`[${'0,'.repeat(ELEMENTS + 1)}0]`)).toThrow(REFUSED);
});
