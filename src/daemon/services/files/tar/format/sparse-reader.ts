import type { DataRange } from '../../../../linux/files/directory-reader.ts';
import { BLOCK } from './block-writer.ts';
import type { ByteSource } from './byte-source.ts';
import { numberAt, type Refuse } from './header-reader.ts';
import { type PaxRecords, paxNumber, readDecimal } from './pax-reader.ts';

/** A file has at most this many ranges. */
const MAX_RANGES = 100_000;
/** A map in an extended header, which is read in one turn of the event loop, has at most this many numbers. */
const MAX_NUMBERS = 16_384;

/** Describes a file of which only some ranges are stored. */
export interface SparseFile {
  /** This is its size in bytes. */
  readonly size: number;
  readonly ranges: readonly DataRange[];
  /** The map took this many bytes of the archive. */
  readonly taken: number;
}

/** Reads the map of a file with GNU's type `S`. The header has four ranges, and each block that follows has 21. */
export async function readGnuSparse(header: Buffer, source: ByteSource, refuse: Refuse): Promise<SparseFile> {
  const numbers: number[] = [];
  const read = (block: Buffer, at: number, count: number) => {
    for (let index = 0; index < count * 2; index++)
      numbers.push(numberAt(block, [at + index * 12, 12], refuse));
  };
  read(header, 386, 4);
  let hasMore = header[482] !== 0;
  while (hasMore) {
    const block = await source.take(BLOCK);
    read(block, 0, 21);
    hasMore = block[504] !== 0;
    if (numbers.length > MAX_RANGES * 2) refuse('a sparse file has too many ranges');
  }
  return sparseFile(numbers, numberAt(header, [483, 12], refuse), 0, refuse);
}

/** Reads the map of a file with GNU's records in its extended header. Returns null when it has none. */
export async function readPaxSparse(
  records: PaxRecords,
  source: ByteSource,
  refuse: Refuse,
): Promise<SparseFile | null> {
  const size =
    paxNumber(records, 'GNU.sparse.realsize', refuse) ?? paxNumber(records, 'GNU.sparse.size', refuse);
  if (size === null) return null;
  const map = records.get('GNU.sparse.map');
  if (map !== undefined) {
    const numbers = map === '' ? [] : map.split(',', MAX_NUMBERS + 1);
    if (numbers.length > MAX_NUMBERS) refuse('a sparse file has too many ranges');
    return sparseFile(numbers.map(digits(refuse)), size, 0, refuse);
  }
  if (records.get('GNU.sparse.major') !== '1') return refuse('the format of a sparse file is not known');
  return readMap(size, source, refuse);
}

/** Reads a map of one number per line: the count of ranges, then start and length of each. It is padded to a block. */
async function readMap(size: number, source: ByteSource, refuse: Refuse): Promise<SparseFile> {
  const parse = digits(refuse);
  const start = source.position;
  const numbers: number[] = [];
  const isComplete = () => numbers.length > 2 * (numbers[0] ?? MAX_RANGES);
  for (let text = ''; !isComplete(); ) {
    text += (await source.take(BLOCK)).toString('latin1');
    const lines = text.split('\n');
    text = lines.pop() ?? '';
    for (const line of lines) if (!isComplete()) numbers.push(parse(line));
    if ((numbers[0] ?? 0) > MAX_RANGES || text.length > BLOCK) refuse('a sparse file has too many ranges');
  }
  return sparseFile(numbers.slice(1), size, source.position - start, refuse);
}

function digits(refuse: Refuse): (text: string) => number {
  return (text) => readDecimal(text) ?? refuse('the map of a sparse file is malformed');
}

function sparseFile(numbers: readonly number[], size: number, taken: number, refuse: Refuse): SparseFile {
  const ranges: DataRange[] = [];
  let end = 0;
  for (let index = 0; index + 1 < numbers.length; index += 2) {
    const start = numbers[index] ?? 0;
    const length = numbers[index + 1] ?? 0;
    if (length === 0) continue;
    if (start < end || length < 0 || start + length > size) refuse('the map of a sparse file is malformed');
    end = start + length;
    ranges.push({ start, length });
  }
  if (size < 0 || ranges.length > MAX_RANGES) refuse('the map of a sparse file is malformed');
  return { size, ranges, taken };
}
