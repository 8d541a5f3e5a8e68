import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { bundle } from '../../../systemd/image/bundle.ts';
import { scratch } from '../../support/scratch.ts';

const PROGRAM = `
  import direct from 'node:assert';
  import { strictEqual } from 'node:assert';
  import { required } from './required.cjs';
  const isLoaded = () => process.moduleLoadList.includes('NativeModule assert');
  const thrown = (work) => {
    try {
      return work();
    } catch (error) {
      return [error.name, error.message, error instanceof direct.AssertionError];
    }
  };
  const told = [];
  direct(true, 'holds');
  required('holds', 'too');
  told.push(isLoaded());
  told.push(thrown(() => direct(0, 'is not')), thrown(() => required('', 'nor this')), thrown(() => strictEqual(1, 2, 'nor that')));
  told.push(isLoaded());
  console.log(JSON.stringify(told));
`;

test('an assertion that holds does not load the module, and one that does not is what it was', async () => {
  const directory = scratch();
  writeFileSync(join(directory, 'program.mjs'), PROGRAM);
  writeFileSync(join(directory, 'required.cjs'), `exports.required = require('assert');`);
  const file = join(directory, 'bundled.cjs');
  writeFileSync(file, (await bundle(join(directory, 'program.mjs'))).code);
  expect(JSON.parse(execFileSync(process.execPath, [file], { encoding: 'utf8' }))).toEqual([
    false,
    ['AssertionError', 'is not', true],
    ['AssertionError', 'nor this', true],
    ['AssertionError', expect.stringMatching(/^nor that/), true],
    true,
  ]);
});
