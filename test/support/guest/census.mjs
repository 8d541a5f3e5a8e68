// The owner of each frame of the guest's memory: a byte for each, written to the file argv[3]. The process argv[2] is
// the daemon. Runs in the guest; sources: Documentation/admin-guide/mm/pagemap.rst, <linux/kernel-page-flags.h>.
import { closeSync, openSync, readFileSync, readSync, writeFileSync } from 'node:fs';

const PAGE = 4096;
/** The order of OWNERS in frames.ts. */
const [KERNEL, TABLES, SLAB, FREE, CACHE, OTHERS, PROGRAM, HEAP] = [0, 1, 2, 3, 4, 5, 6, 7];
const flag = (bit) => 1n << BigInt(bit);
const [SLAB_FLAG, BUDDY_FLAG, ANON_FLAG, LRU_FLAG, TABLE_FLAG] = [7, 10, 12, 5, 26].map(flag);
const PRESENT = flag(63);
const FRAME = flag(55) - 1n;

function read(path, start, count) {
  const file = openSync(path, 'r');
  const entries = new BigUint64Array(count);
  const length = readSync(file, entries, 0, count * 8, start * 8);
  closeSync(file);
  return entries.subarray(0, length / 8);
}

function ownerOf(flags) {
  if (flags & BUDDY_FLAG) return FREE;
  if (flags & SLAB_FLAG) return SLAB;
  if (flags & TABLE_FLAG) return TABLES;
  if (flags & ANON_FLAG) return OTHERS;
  return flags & LRU_FLAG ? CACHE : KERNEL;
}

const [, , pid, output] = process.argv;
const owners = Uint8Array.from(read('/proc/kpageflags', 0, 1 << 18), ownerOf);
for (const line of readFileSync(`/proc/${pid}/maps`, 'utf8').split('\n')) {
  const [, from = '', to = '', inode] = /^(\w+)-(\w+) \S+ \S+ \S+ (\d+)/.exec(line) ?? [];
  const [start, end] = [from, to].map((address) => Number.parseInt(address, 16) / PAGE);
  // The reservation of the address space has no frames.
  if (!from || line.includes('---p') || start > 2 ** 35) continue;
  for (const entry of read(`/proc/${pid}/pagemap`, start, end - start)) {
    if (entry & PRESENT) owners[Number(entry & FRAME)] = inode === '0' ? HEAP : PROGRAM;
  }
}
writeFileSync(output, owners);
