import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { httpStatusOf } from '../../../src/base/errors.ts';
import { Semaphore } from '../../../src/base/semaphore.ts';
import { ContentBatches } from '../../../src/daemon/http/rest/files/batches.ts';
import { partsOf } from '../../../src/daemon/http/rest/files/multipart.ts';
import { cut } from '../refused.ts';

/** A delimiter with one dash behind it, which is no delimiter: what the parser makes of it depends on how it is cut. */
const ODD_DELIMITER = /--x-(?!-)/;

/** Multipart uploads. First byte: the number of cuts that follow, then the body; its boundary is `x`. */
export async function fuzz(data: Buffer): Promise<void> {
  const cuts = data.subarray(1, 1 + (data[0] ?? 0));
  const body = data.subarray(1 + cuts.length);
  const parts = await read([body]);
  // An error may come before or after the content of the last part.
  const again = await read([...cut(body, cuts)]);
  if (ODD_DELIMITER.test(body.toString('latin1'))) return;
  assert.equal(again.at(-1), parts.at(-1));
  if (parts.at(-1) === 'end') assert.deepEqual(again, parts);
}

/** The name, the file name and the content of each part, and how it ended. */
async function read(pieces: readonly Buffer[]): Promise<unknown[]> {
  const found: unknown[] = [];
  const room = new Semaphore(0);
  try {
    const body = Readable.from(pieces.filter(({ length }) => length > 0));
    for await (const part of partsOf(body, 'multipart/form-data; boundary=x')) {
      const content: Buffer[] = [];
      // Every other part is skipped.
      if (found.length % 2 === 0)
        for await (const batch of new ContentBatches(part.content, room)) content.push(...batch);
      found.push([part.name, part.fileName, String(Buffer.concat(content))]);
    }
    found.push('end');
  } catch (error) {
    if (httpStatusOf(error) >= 500) throw error;
    found.push('error');
  }
  return found;
}
