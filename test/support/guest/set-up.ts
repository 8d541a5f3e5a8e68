import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { Guest } from './guest.ts';
import { buildImage, NoPackages } from './image.ts';
import { Machine, type Snapshot } from './machine.ts';
import { reasonNotToRun } from './tools.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** A machine that has booted and was stopped then, before any /init; null where no guest can be run. */
    booted: Snapshot | null;
  }
}

const directory = mkdtempSync(join(tmpdir(), 'envd-booted-'));

/** Boots a guest once for all files; each test goes on from there. */
export async function setup(project: TestProject): Promise<void> {
  project.provide('booted', await boot());
}

export function teardown(): void {
  rmSync(directory, { recursive: true, force: true });
}

async function boot(): Promise<Snapshot | null> {
  const reason = reasonNotToRun();
  if (reason) return notRun(reason);
  const image = await timed('image', buildImage).catch((error) => {
    if (!(error instanceof NoPackages)) throw error;
    return notRun(`${error.message}: ${error.cause}`);
  });
  if (!image) return null;
  await using machine = await timed('boot', () => Machine.boot(image, directory));
  const guest = new Guest(machine.url);
  // Whatever it comes to: a test looks at what has failed.
  await timed('all units', () => guest.shell('systemctl is-system-running --wait || true'));
  return await machine.snapshot();
}

function notRun(reason: string): null {
  process.stderr.write(`test:guest: not run: ${reason}\n`);
  return null;
}

async function timed<T>(what: string, work: () => T | Promise<T>): Promise<T> {
  const started = performance.now();
  const result = await work();
  process.stderr.write(`test:guest: ${what}: ${Math.round((performance.now() - started) / 1000)} s\n`);
  return result;
}
