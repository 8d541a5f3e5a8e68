import { readdirSync } from 'node:fs';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Inputs that are kept. */
export const CORPUS = fileURLToPath(new URL('corpus', import.meta.url));
/** What is built and found; not kept. */
export const FUZZ = fileURLToPath(new URL('../../.fuzz', import.meta.url));

export interface Target {
  readonly name: string;
  readonly language: 'c' | 'typescript';
}

/** All targets: `c/NAME.c` and `targets/NAME.ts`. */
export function targets(): readonly Target[] {
  const names = (directory: string, extension: string) =>
    readdirSync(new URL(directory, import.meta.url))
      .filter((file) => file.endsWith(extension) && !NO_TARGETS.includes(file))
      .map((file) => basename(file, extension));
  return [
    ...names('c/', '.c').map((name) => ({ name, language: 'c' }) as const),
    ...names('targets/', '.ts').map((name) => ({ name, language: 'typescript' }) as const),
  ];
}

const NO_TARGETS = ['replay.c'];
