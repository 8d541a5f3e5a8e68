import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ProvidedContext } from 'vitest';
import type { TestProject } from 'vitest/node';
import { Guest } from './guest.ts';
import { buildImage, type Image, NoPackages } from './image.ts';
import { Machine, type Snapshot } from './machine.ts';
import { reasonNotToRun } from './tools.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** A machine that was stopped after its boot, before any /init; or why no guest can run here. */
    booted: { snapshot: Snapshot; reason: null } | { snapshot: null; reason: string };
  }
}

const directory = mkdtempSync(join(tmpdir(), 'envd-booted-'));

/** Boots a guest once for all test files; each test starts from there. */
export async function setup(project: TestProject): Promise<void> {
  project.provide('booted', await boot());
}

export function teardown(): void {
  rmSync(directory, { recursive: true, force: true });
}

async function boot(): Promise<ProvidedContext['booted']> {
  const reason = reasonNotToRun();
  if (reason) return { snapshot: null, reason };
  let image: Image;
  try {
    image = await timed('image', buildImage);
  } catch (error) {
    if (!(error instanceof NoPackages)) throw error;
    return { snapshot: null, reason: `${error.message}: ${error.cause}` };
  }
  await using machine = await timed('boot', () => Machine.boot(image, directory));
  const guest = new Guest(machine.url);
  // Also with failed units: a test reports them.
  await timed('all units', () => guest.shell('systemctl is-system-running --wait || true'));
  return { snapshot: await machine.snapshot(), reason: null };
}

async function timed<T>(what: string, work: () => T | Promise<T>): Promise<T> {
  const started = performance.now();
  const result = await work();
  process.stderr.write(`test:guest: ${what}: ${Math.round((performance.now() - started) / 1000)} s\n`);
  return result;
}
