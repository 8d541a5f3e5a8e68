import { create, toBinary, toJsonString } from '@bufbuild/protobuf';
import { expect, test } from 'vitest';
import { ListAnswer } from '../../../../../src/daemon/http/connect/list-answer.ts';
import { ListResponseSchema } from '../../../../../src/gen/process/process_pb.js';

/** With the characters that JSON is made of. */
const infos = (count: number, bytes = 3000) =>
  Array.from({ length: count }, (_, pid) => ({ pid, config: { cmd: '[{"]},', args: ['x'.repeat(bytes)] } }));
const sizeOf = ({ config }: { readonly config: { readonly args: readonly string[] } }) =>
  config.args.join('').length;

test.each([0, 2, 88, 300])('%d elements in slices are one message', async (count) => {
  const processes = infos(count);
  const whole = create(ListResponseSchema, { processes });
  for (const codec of ['json', 'binary'] as const) {
    const list = new ListAnswer(ListResponseSchema, codec);
    const small = await list.addAll(processes, sizeOf, (some) => ({ processes: [...some] }));
    const chunks = list.end();
    if (count < 80) expect([small, chunks]).toEqual([{ processes }, null]);
    else if (codec === 'json')
      expect(String(Buffer.concat(chunks ?? []))).toBe(toJsonString(ListResponseSchema, whole));
    else expect(Buffer.concat(chunks ?? [])).toEqual(Buffer.from(toBinary(ListResponseSchema, whole)));
  }
});

test.each([
  [1000, 3000],
  [12, 300_000],
])('the event loop turns while %d elements of %d bytes are encoded', async (count, bytes) => {
  const list = new ListAnswer(ListResponseSchema, 'json');
  let turns = 0;
  let isDone = false;
  const immediate = () => {
    turns++;
    if (!isDone) setImmediate(immediate);
  };
  setImmediate(immediate);
  await list.addAll(infos(count, bytes), sizeOf, (some) => ({ processes: [...some] }));
  isDone = true;
  // 3 MB and more, a turn for each 256 KiB.
  expect(turns).toBeGreaterThan(5);
});
