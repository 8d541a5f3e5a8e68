import { create, toBinary, toJsonString } from '@bufbuild/protobuf';
import { expect, test } from 'vitest';
import { ListAnswer } from '../../../../src/daemon/rpc/list-answer.ts';
import { ListResponseSchema } from '../../../../src/gen/process/process_pb.js';

/** With the characters that JSON is made of. */
const infos = (count: number) =>
  Array.from({ length: count }, (_, pid) => ({ pid, config: { cmd: '[{"]},', args: ['x'.repeat(3000)] } }));

test.each([0, 1, 2, 300])('%d elements in slices are one message', async (count) => {
  const processes = infos(count);
  const whole = create(ListResponseSchema, { processes });
  for (const codec of ['json', 'binary'] as const) {
    const list = new ListAnswer(ListResponseSchema, codec);
    await list.addAll(processes, 2, (some) => ({ processes: [...some] }));
    const chunks = list.end();
    if (count === 0) expect(chunks).toBeNull();
    else if (codec === 'json')
      expect(String(Buffer.concat(chunks ?? []))).toBe(toJsonString(ListResponseSchema, whole));
    else expect(Buffer.concat(chunks ?? [])).toEqual(Buffer.from(toBinary(ListResponseSchema, whole)));
  }
});

test('the event loop turns while a large list is encoded', async () => {
  const list = new ListAnswer(ListResponseSchema, 'json');
  let turns = 0;
  const turn = setInterval(() => turns++, 0);
  let isDone = false;
  const immediate = () => {
    turns++;
    if (!isDone) setImmediate(immediate);
  };
  setImmediate(immediate);
  await list.addAll(infos(1000), 16, (some) => ({ processes: [...some] }));
  isDone = true;
  clearInterval(turn);
  // 3 MB, a turn for each 256 KiB.
  expect(turns).toBeGreaterThan(5);
});
