import { execFileSync } from 'node:child_process';
import { mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { withoutOpenat2 } from '../../support/attackers/without-openat2.ts';
import { needs } from '../../support/machine/needs.ts';
import { scratch } from '../../support/machine/scratch.ts';

const ADDON = fileURLToPath(new URL('../../../native/build/Release/envd.node', import.meta.url));

/** Prints what becomes of each path below a directory: its arguments. */
const SCRIPT = `
const native = require(${JSON.stringify(ADDON)});
const { openSync, constants } = require('node:fs');
const [directory, ...paths] = process.argv.slice(1);
const root = openSync(directory, 'r');
for (const path of paths) {
  try {
    native.openBelow(root, Buffer.from(path), constants.O_DIRECTORY, false, null);
    console.log('opened');
  } catch (error) {
    console.log(error.code);
  }
}
`;

test('without openat2(2) no link on the way is followed either', () => {
  needs('cc');
  const root = scratch();
  mkdirSync(join(root, 'real/below'), { recursive: true });
  symlinkSync('real', join(root, 'link'));
  const paths = ['real/below', 'link/below', 'link', 'real//below/', 'missing', join(root, 'real')];
  const script = [process.execPath, '-e', SCRIPT, '--', root, ...paths];
  expect(execFileSync(withoutOpenat2(), script, { encoding: 'utf8' }).trim().split('\n')).toEqual([
    'opened',
    'ENOTDIR',
    'ENOTDIR',
    'opened',
    'ENOENT',
    'opened',
  ]);
});
