import { create, toJsonString } from '@bufbuild/protobuf';
import { expect, test } from 'vitest';
import { infoOf } from '../../../../../src/daemon/http/rpc/process-messages.ts';
import { ProcessInfoSchema } from '../../../../../src/gen/process/process_pb.js';

const empty = { command: '/bin/true', args: [], environment: {}, cwd: null };
const full = { ...empty, args: ['', '"\n\u2028ü😀'], environment: { b: '', 10: 'x', A: '"' }, cwd: '' };

test.each([
  { config: empty, pid: 1, tag: null },
  { config: full, pid: 4_294_967_295, tag: '' },
  { config: { ...full, cwd: '/tmp' }, pid: 2, tag: 'tag' },
])('what List tells of %o is the JSON that the general encoder makes', (process) => {
  const info = infoOf(process);
  expect(JSON.stringify(info)).toBe(toJsonString(ProcessInfoSchema, create(ProcessInfoSchema, info)));
});
