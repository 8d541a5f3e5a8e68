import { spawn } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';
import { scratch } from '../machine/scratch.ts';

const { PATH, NODE_COMPILE_CACHE, ENVD_TEST_IMAGE } = process.env;

/**
 * Runs a tour of test/demo; expects exit code 0, `keyLines` on the screen in this order, and no file left behind.
 * Returns the screen and the pid.
 */
export async function runTour(
  name: string,
  keyLines: readonly RegExp[],
): Promise<{ shown: string; pid: number | undefined }> {
  const directory = scratch();
  const child = spawn(process.execPath, [fileURLToPath(new URL(`../../demo/${name}`, import.meta.url))], {
    env: { PATH, NODE_COMPILE_CACHE, ENVD_TEST_IMAGE, TMPDIR: directory },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const exited = new Promise((resolve) => child.once('exit', resolve));
  const [shown, complaints] = await Promise.all([text(child.stdout), text(child.stderr)]);
  expect(complaints).toBe('');
  expect(await exited).toBe(0);
  let at = 0;
  for (const line of keyLines) {
    const found = line.exec(shown.slice(at));
    expect(found, `${line} in\n${shown.slice(at)}`).not.toBeNull();
    at += (found?.index ?? 0) + (found?.[0].length ?? 0);
  }
  expect(readdirSync(directory)).toEqual([]);
  return { shown, pid: child.pid };
}
