import type { TreeItem } from './item.ts';

/** An archive consists of blocks of this size, in bytes. */
const BLOCK = 512;
const MAX_SIZE = 0o77777777777;
const TYPES = { file: '0', link: '2', directory: '5' } as const;

/**
 * Returns the headers of a member. It is ustar, with an extended pax header for values that do not fit (POSIX.1-2017,
 * pax(1)).
 */
export function tarHeaders({ names, kind, size, mode, modified, target }: TreeItem): Buffer {
  const name = names.join('/') + (kind === 'directory' ? '/' : '');
  const stored = kind === 'file' ? size : 0;
  const seconds = Math.floor(modified / 1000);
  let records = pax('mtime', (modified / 1000).toFixed(6));
  if (Buffer.byteLength(name) > 100) records += pax('path', name);
  if (target !== null && Buffer.byteLength(target) > 100) records += pax('linkpath', target);
  if (stored > MAX_SIZE) records += pax('size', String(stored));
  const extended = Buffer.from(records);
  const type = TYPES[kind as keyof typeof TYPES];
  return Buffer.concat([
    header({ name: 'pax', type: 'x', size: extended.length, mode: 0o644, seconds, link: '' }),
    extended,
    tarPadding(extended.length),
    header({ name, type, size: stored > MAX_SIZE ? 0 : stored, mode, seconds, link: target ?? '' }),
  ]);
}

/** Returns zeros that fill the last block of a file of `size` bytes. */
export function tarPadding(size: number): Buffer {
  return Buffer.alloc((BLOCK - (size % BLOCK)) % BLOCK);
}

/** Returns the two blocks of zeros that end an archive. */
export function tarEnd(): Buffer {
  return Buffer.alloc(2 * BLOCK);
}

/** Returns a record `LENGTH KEY=VALUE\n`, whose length in bytes includes the length itself. */
function pax(key: string, value: string): string {
  const rest = Buffer.byteLength(key) + Buffer.byteLength(value) + 3;
  let length = rest + String(rest).length;
  if (String(length).length > String(rest).length) length = rest + String(length).length;
  return `${length} ${key}=${value}\n`;
}

interface HeaderFields {
  readonly name: string;
  readonly type: string;
  readonly size: number;
  readonly mode: number;
  readonly seconds: number;
  readonly link: string;
}

function header({ name, type, size, mode, seconds, link }: HeaderFields): Buffer {
  const block = Buffer.alloc(BLOCK);
  Buffer.from(name).copy(block, 0, 0, 100);
  const octal = (value: number, length: number) => value.toString(8).padStart(length - 1, '0');
  block.write(octal(mode & 0o777, 8), 100);
  block.write(octal(0, 8), 108);
  block.write(octal(0, 8), 116);
  block.write(octal(size, 12), 124);
  block.write(octal(seconds < 0 || seconds > MAX_SIZE ? 0 : seconds, 12), 136);
  block.fill(' ', 148, 156);
  block.write(type, 156);
  Buffer.from(link).copy(block, 157, 0, 100);
  block.write('ustar\x0000', 257, 'latin1');
  let sum = 0;
  for (const byte of block) sum += byte;
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  return block;
}
