import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { makePackages } from './made.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** The directory with the artefacts, compressed little. */
    artefacts: string;
  }
}

const directory = mkdtempSync(join(tmpdir(), 'envd-artefacts-'));

/** Makes the artefacts once for all test files, unless ENVD_TEST_ARTEFACTS names a directory with them. */
export function setup(project: TestProject): void {
  const { ENVD_TEST_ARTEFACTS: made } = process.env;
  if (made === undefined) makePackages(directory);
  project.provide('artefacts', made ?? directory);
}

export function teardown(): void {
  rmSync(directory, { recursive: true, force: true });
}
