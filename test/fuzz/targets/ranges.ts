import assert from 'node:assert/strict';
import { planDownload } from '../../../src/daemon/http/rest/files/download-plan.ts';
import { selectRanges } from '../../../src/daemon/http/rest/files/ranges.ts';
import { unlessRefused } from '../refused.ts';

/** Ranges, conditions and codings of downloads. Two bytes of size, then lines: the name of the file, and headers. */
export function fuzz(data: Buffer): void {
  if (data.length < 2) return;
  const size = data.readUInt16LE(0);
  const [name = '', ...lines] = data.toString('latin1', 2).split('\n');
  const headers: Record<string, string> = Object.create(null);
  for (const line of lines) {
    const [header = '', ...value] = line.split(':');
    headers[header.toLowerCase()] = value.join(':').trim();
  }
  const ranges = selectRanges(headers.range, size) ?? [];
  for (const { start, end } of ranges) assert(start >= 0 && end > start && end <= size);
  assert(ranges.reduce((sum, { start, end }) => sum + end - start, 0) <= size);

  const facts = { name, size, modified: new Date(1_700_000_000_000), tag: 'tag' };
  const plan = unlessRefused(() => planDownload('GET', headers, facts));
  const length = plan?.headers['content-length'];
  if (!plan || length === undefined) return;
  const lengths = plan.pieces.map((piece) =>
    Buffer.isBuffer(piece) ? piece.length : (piece.end ?? size) - piece.start,
  );
  assert.equal(
    lengths.reduce((sum, one) => sum + one, 0),
    length,
  );
}
