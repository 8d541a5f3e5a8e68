import { execFileSync } from 'node:child_process';
import { copyFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';
import { expect, test } from 'vitest';
import { asFunction, bundle } from '../../../systemd/image/bundle.ts';
import { requireComplete } from '../../../systemd/image/completeness.ts';
import { scratch } from '../../support/machine/scratch.ts';

const LOADER = fileURLToPath(new URL('../../../systemd/image/loader.cjs', import.meta.url));

/** Writes a program of these files and bundles it; returns the path of the loader that runs it. */
async function bundled(files: Readonly<Record<string, string>>): Promise<string> {
  const directory = scratch();
  for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), text);
  const { code } = await bundle(join(directory, 'program.ts'));
  writeFileSync(join(directory, 'bundle.js'), asFunction(code));
  writeFileSync(join(directory, 'bundle.code'), '');
  copyFileSync(LOADER, join(directory, 'bundle.cjs'));
  return join(directory, 'bundle.cjs');
}

const outputOf = (program: string) =>
  JSON.parse(execFileSync(process.execPath, [program], { encoding: 'utf8' }));

/** A check whose only effect is an error, and others that a bundler may take for calls without any. */
const CHECKS = `
  type Check = 'a type is no text' | (() => unknown);
  const checks = [
    () => void decodeURIComponent('%E9'),
    () => { try { decodeURIComponent('%E9'); } catch { throw new Error('it must be UTF-8'); } },
    () => void BigInt('x'),
    () => void new URL('/'),
    () => void Symbol.keyFor(1 as unknown as symbol),
    () => void String(Object.create(null)),
    () => void [].reduce(String),
    () => { if (1 + 1 === 2) throw new Error(\`constant \${'text'} of two parts\`); },
  ] satisfies Check[];
  const told = (check: () => unknown) => { try { check(); return 'nothing'; } catch { return 'an error'; } };
  console.log(JSON.stringify(checks.map(told)));
`;

test('a bundle has every check of its sources', async () => {
  expect(outputOf(await bundled({ 'program.ts': CHECKS }))).toEqual(Array(8).fill('an error'));
});

test('a bundle that lacks a part of the sources is refused', async () => {
  const path = join(scratch(), 'program.ts');
  const bundleBy = async (treeshake: boolean, minify: false | 'dce-only') => {
    await using program = await rolldown({ input: path, treeshake });
    return (await program.generate({ codeSplitting: false, minify })).output[0];
  };
  writeFileSync(path, CHECKS);
  const complete = await bundleBy(false, false);
  expect(() => requireComplete(complete)).not.toThrow();
  const shaken = await bundleBy(true, false);
  expect(() => requireComplete(shaken)).toThrow(
    /^the bundle has \d+ of \d+ \S.* of .*program\.ts: the bundler has removed the rest$/,
  );
  const minified = await bundleBy(false, 'dce-only');
  expect(() => requireComplete(minified)).toThrow(
    "the bundle has 0 of 1 'it must be UTF-8' of the sources: the bundler has removed the rest",
  );
});

test('modules of Node that a start does not need are loaded when a member is read, however they are imported', async () => {
  const program = await bundled({
    'program.ts': `
      import crypto from 'node:crypto';
      import { createHash } from 'node:crypto';
      import * as dns from 'node:dns';
      import { required } from './required.cjs';
      const isLoaded = (name) => process.moduleLoadList.includes('NativeModule ' + name);
      const loaded = () => ['crypto', 'dns', 'child_process', 'http2'].map(isLoaded);
      const told = [loaded()];
      told.push(crypto.createHash === createHash, typeof dns.lookup, typeof required.child.spawn);
      told.push(Object.hasOwn(dns, 'none'), dns.none ?? null, loaded());
      console.log(JSON.stringify(told));`,
    'required.cjs': `exports.required = { child: require('child_process'), http2: require('node:http2') };`,
  });
  expect(outputOf(program)).toEqual([
    ...[Array(4).fill(false), true, 'function', 'function', false, null],
    [true, true, true, false],
  ]);
});

test('functions of zlib that a program wraps when it is loaded load zlib when they are called', async () => {
  const program = await bundled({
    'program.ts': `
      import { promisify } from 'node:util';
      import zlib, { gunzip } from 'node:zlib';
      const [compress, decompress] = [promisify(zlib.gzip), promisify(gunzip)];
      const isLoaded = () => process.moduleLoadList.includes('NativeModule zlib');
      const before = isLoaded();
      const text = async () => String(await decompress(await compress('text')));
      text().then((result) => console.log(JSON.stringify([before, isLoaded(), result])));`,
  });
  expect(outputOf(program)).toEqual([false, true, 'text']);
});

test('what is imported dynamically is in the bundle, and evaluated when it is imported', async () => {
  const program = await bundled({
    'program.ts': `
      const order = ['program'];
      globalThis.order = order;
      import("./later.ts").then(({ name }) => console.log(JSON.stringify([...order, name])));
      order.push('start');`,
    'later.ts': `globalThis.order.push('later'); export const name = 'its export';`,
  });
  expect(outputOf(program)).toEqual(['program', 'start', 'later', 'its export']);
});
