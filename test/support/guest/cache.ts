import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const DIRECTORY = fileURLToPath(new URL('../../../node_modules/.cache/envd-guest', import.meta.url));

/**
 * The directory `kind` that `make` fills from `inputs` (texts, or absolute paths of files and directories); made only
 * when none exists for the same inputs. Older ones of the same kind are removed.
 */
export function cached(kind: string, inputs: readonly string[], make: (directory: string) => void): string {
  const hash = createHash('sha256');
  for (const input of inputs) addInput(hash, input);
  const name = `${kind}-${hash.digest('hex').slice(0, 16)}`;
  const path = join(DIRECTORY, name);
  if (existsSync(path)) return path;
  mkdirSync(DIRECTORY, { recursive: true });
  for (const earlier of readdirSync(DIRECTORY)) {
    if (earlier.startsWith(`${kind}-`)) rmSync(join(DIRECTORY, earlier), { recursive: true });
  }
  const unfinished = join(DIRECTORY, `unfinished-${kind}`);
  rmSync(unfinished, { recursive: true, force: true });
  mkdirSync(unfinished);
  make(unfinished);
  renameSync(unfinished, path);
  return path;
}

function addInput(hash: ReturnType<typeof createHash>, input: string): void {
  hash.update(`${input}\0`);
  if (!input.startsWith('/')) return;
  if (!statSync(input).isDirectory()) {
    hash.update(readFileSync(input));
    return;
  }
  for (const name of readdirSync(input).sort()) addInput(hash, join(input, name));
}
