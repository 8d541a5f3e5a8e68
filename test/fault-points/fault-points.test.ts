import { execFileSync, spawn } from 'node:child_process';
import { globSync, mkdirSync, mkdtempSync, realpathSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { needs } from '../support/machine/needs.ts';
import { OPERATIONS } from './operations.ts';

/*
 * Every call of libc and libuv that the addon and envd-start make fails once: docs/decisions/031-testing.md.
 * ENVD_FAULT_ERRORS: the errors, all those that the record names; default: those that differ most.
 */

const ERRORS = process.env.ENVD_FAULT_ERRORS ?? 'EIO,ENOMEM,EINTR';
const TIMEOUT = 600_000;
const NATIVE = fileURLToPath(new URL('../../native', import.meta.url));
const here = (name: string) => fileURLToPath(new URL(name, import.meta.url));

interface Swept {
  readonly name: string;
  readonly faults: number;
  readonly problems: readonly string[];
}

let scratch: string;
let swept: ReadonlyMap<string, Swept>;

beforeAll(async () => {
  if (process.geteuid?.() !== 0) return;
  scratch = mkdtempSync(join(realpathSync(tmpdir()), 'envd-points-'));
  mkdirSync(join(scratch, 'files'));
  const points = join(scratch, 'points');
  writeFileSync(points, '');
  truncateSync(points, 136);
  const addon = build(points);
  const worker = [here('worker.ts'), addon, points, join(scratch, 'files'), ERRORS];
  const child = spawn(process.execPath, worker, { stdio: ['ignore', 'pipe', 'inherit'] });
  const lines = (await text(child.stdout)).trim().split('\n');
  swept = new Map(lines.map((line): Swept => JSON.parse(line)).map((one) => [one.name, one]));
}, TIMEOUT);
afterAll(() => {
  if (scratch) rmSync(scratch, { recursive: true, force: true });
});
beforeEach(() => needs('root'));

/** Compiles both with the points; returns the path of the addon. */
function build(points: string): string {
  const compile = (output: string, ...args: readonly string[]) => {
    const flags = ['@compile_flags.txt', '-w', '-O0', '-include', here('points.h'), `-DPOINTS="${points}"`];
    execFileSync('cc', [...flags, here('points.c'), ...args, '-o', join(scratch, output)], { cwd: NATIVE });
    return join(scratch, output);
  };
  const sources = globSync('src/**/*.c', { cwd: NATIVE, exclude: ['src/starter/**'] });
  compile('envd-start', 'src/starter/main.c');
  return compile('envd.node', '-fPIC', '-shared', '-Wl,-z,nodelete', ...sources);
}

test.each(OPERATIONS.map(({ name }) => name))('%s', (name) => {
  const result = swept.get(name);
  expect(result?.problems, 'the process has ended before').toEqual([]);
  expect(result?.faults).toBeGreaterThan(0);
});
