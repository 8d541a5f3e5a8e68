import { constants } from 'node:fs';

/** In the order in which Go prints them: the kinds of file mixed with the special bits; `?` could not be told. */
const LETTERS: readonly (readonly [letter: string, holds: (mode: number) => boolean])[] = [
  ['d', (mode) => kind(mode) === constants.S_IFDIR],
  ['L', (mode) => kind(mode) === constants.S_IFLNK],
  ['D', (mode) => kind(mode) === constants.S_IFBLK || kind(mode) === constants.S_IFCHR],
  ['p', (mode) => kind(mode) === constants.S_IFIFO],
  ['S', (mode) => kind(mode) === constants.S_IFSOCK],
  ['u', (mode) => (mode & 0o4000) !== 0],
  ['g', (mode) => (mode & 0o2000) !== 0],
  ['c', (mode) => kind(mode) === constants.S_IFCHR],
  ['t', (mode) => (mode & 0o1000) !== 0],
  ['?', (mode) => kind(mode) === 0],
];

function kind(mode: number): number {
  return mode & constants.S_IFMT;
}

/** What the nine lowest bits look like, computed once for each of the 512 cases. */
const RWX = Array.from({ length: 0o1000 }, (_, bits) =>
  Array.from('rwxrwxrwx', (letter, place) => ((bits >> (8 - place)) & 1 ? letter : '-')).join(''),
);

/**
 * `st_mode` of inode(7) as Go's `fs.FileMode.String` prints it: a letter for each trait (`-` when there is
 * none), then `rwx` three times. Unlike in `ls -l`, setuid, setgid and sticky do not change the `x`.
 */
export function permissionString(mode: number): string {
  return lettersOf(mode) + RWX[mode & 0o777];
}

function lettersOf(mode: number): string {
  let letters = '';
  for (const [letter, holds] of LETTERS) if (holds(mode)) letters += letter;
  return letters || '-';
}
