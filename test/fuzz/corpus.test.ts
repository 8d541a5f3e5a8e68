import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { needs } from '../support/machine/needs.ts';
import { scratch } from '../support/machine/scratch.ts';
import { buildTypeScript, flagsOfC } from './build.ts';
import { CORPUS, targets } from './targets.ts';

/* The inputs that fuzzing has found once hold for good: `npm run fuzz` looks for more. */

const NATIVE = fileURLToPath(new URL('../../native', import.meta.url));
const inputsOf = (target: string) =>
  readdirSync(join(CORPUS, target)).map((name) => join(CORPUS, target, name));
const named = (language: string) => targets().flatMap((one) => (one.language === language ? [one.name] : []));

describe('in TypeScript', () => {
  test.each(named('typescript'))('%s', async (name) => {
    const { fuzz } = await import(`./targets/${name}.ts`);
    const inputs = inputsOf(name);
    expect(inputs.length).toBeGreaterThan(0);
    for (const input of inputs) await fuzz(readFileSync(input));
  });
});

test.each(named('typescript'))('what `npm run fuzz` builds for %s finds the addon', async (name) => {
  const { args } = await buildTypeScript(name);
  const bundle = args.find((argument) => argument.endsWith('.mjs'));
  expect(execFileSync(process.execPath, ['-e', `import('${bundle}')`], { stdio: 'pipe' }).length).toBe(0);
});

describe('in C, with sanitizers', () => {
  test.each(named('c'))('%s', (name) => {
    // Links of other users.
    needs('root');
    const program = join(scratch(), name);
    const inputs = inputsOf(name);
    expect(inputs.length).toBeGreaterThan(0);
    execFileSync(
      'cc',
      [...flagsOfC(name), fileURLToPath(new URL('c/replay.c', import.meta.url)), '-o', program],
      {
        cwd: NATIVE,
      },
    );
    execFileSync(program, inputs, {
      stdio: ['ignore', 'ignore', 'inherit'],
      env: { ASAN_OPTIONS: 'detect_leaks=1' },
    });
  });
});
