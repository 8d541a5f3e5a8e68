import { constants } from 'node:fs';
import { fileTypeOf } from '../../../linux/files/entries.ts';

/** Go writes file types and special bits in this order. `?` stands for an unknown type. */
const LETTERS: readonly (readonly [letter: string, holds: (mode: number) => boolean])[] = [
  ['d', (mode) => fileTypeOf(mode) === constants.S_IFDIR],
  ['L', (mode) => fileTypeOf(mode) === constants.S_IFLNK],
  ['D', (mode) => fileTypeOf(mode) === constants.S_IFBLK || fileTypeOf(mode) === constants.S_IFCHR],
  ['p', (mode) => fileTypeOf(mode) === constants.S_IFIFO],
  ['S', (mode) => fileTypeOf(mode) === constants.S_IFSOCK],
  ['u', (mode) => (mode & 0o4000) !== 0],
  ['g', (mode) => (mode & 0o2000) !== 0],
  ['c', (mode) => fileTypeOf(mode) === constants.S_IFCHR],
  ['t', (mode) => (mode & 0o1000) !== 0],
  ['?', (mode) => fileTypeOf(mode) === 0],
];

/** This has `rwxrwxrwx` for each of the 512 permission values. */
const RWX = Array.from({ length: 0o1000 }, (_, bits) =>
  Array.from('rwxrwxrwx', (letter, place) => ((bits >> (8 - place)) & 1 ? letter : '-')).join(''),
);

/**
 * Formats `st_mode`, inode(7), as Go's `fs.FileMode.String` does: a letter for the file type and each special bit (`-`
 * if there are none), then `rwx` three times. Unlike in `ls -l`, set-id and sticky bits do not change the `x`.
 */
export function permissionString(mode: number): string {
  return lettersOf(mode) + RWX[mode & 0o777];
}

function lettersOf(mode: number): string {
  let letters = '';
  for (const [letter, holds] of LETTERS) if (holds(mode)) letters += letter;
  return letters || '-';
}
