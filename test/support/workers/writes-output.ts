import { History } from '../../../src/daemon/services/process/output/history.ts';
import { OutputStore } from '../../../src/daemon/services/process/output/output-store.ts';
import { sizeOf, streamOf, textOf } from '../clients/counted-output.ts';

/** Keeps the output of three processes until it is killed; tells the descriptor of the memory. */
const limit = Number(process.argv[2]);
const store = new OutputStore(limit, 2 * limit);
const histories = [1, 2, 3].map(() => new History(store));
const totals = histories.map(() => ({ stdout: 0, stderr: 0, pty: 0 }));
function write(count: number): void {
  const history = histories[count % 3];
  const offsets = totals[count % 3];
  const stream = streamOf(count);
  if (!history || !offsets) return;
  const bytes = textOf(stream, offsets[stream], sizeOf(count));
  history.append(stream, bytes, offsets);
  offsets[stream] += bytes.length;
}

// Write 0 is empty.
for (const [index] of histories.entries()) write(index + 1);
process.stdout.write(`${store.memory.descriptor}\n`, () => {
  for (let count = histories.length + 1; ; count++) write(count);
});
