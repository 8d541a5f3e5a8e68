import {
  chmodSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  readSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { constants } from 'node:os';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { OPERATIONS, type Operation, prepare } from './operations.ts';

/*
 * worker.ts ADDON POINTS DIRECTORY ERROR,…: each point of each operation fails once with each error. Prints a line for each
 * operation, JSON: its name, how many calls had a fault, and the problems: a result that is neither an error nor true,
 * a file that is half done, a descriptor, thread or process that is left, a call that does not end.
 */

const [addon = '', points = '', directory = '', errors = ''] = process.argv.slice(2);
const native: typeof import('../../native/index.d.ts') = createRequire(import.meta.url)(addon);
const shared = openSync(points, 'r+');

/** More than any operation has, but for the windows of the heap. */
const MOST_POINTS = 80;
const LIMIT_MS = 5000;
/** Of looking whether all is closed, 5 ms apart. */
const MOST_TRIES = 100;
/** The layout of `points` in points.c. */
const [NUMBER, FAILED, NAME, SIZE] = [4, 12, 16, 136];

/** From now on this point fails. */
function arm(error: keyof typeof constants.errno, number: number): void {
  const bytes = Buffer.alloc(SIZE);
  bytes.writeInt32LE(number, NUMBER);
  writeSync(shared, bytes, 0, SIZE, 0);
  // Last, as it begins with it.
  bytes.writeInt32LE(constants.errno[error]);
  writeSync(shared, bytes, 0, 4, 0);
}

/** Returns which point has failed; null when there are fewer. */
function disarm(): string | null {
  writeSync(shared, Buffer.alloc(4), 0, 4, 0);
  const bytes = Buffer.alloc(SIZE);
  readSync(shared, bytes, 0, SIZE, 0);
  return bytes.readInt32LE(FAILED) === 0 ? null : bytes.toString('latin1', NAME, bytes.indexOf(0, NAME));
}

interface Outcome {
  readonly error: unknown;
  readonly result: unknown;
}

async function outcomeOf({ call }: Operation): Promise<Outcome> {
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error('it does not end')), LIMIT_MS);
  try {
    return { error: null, result: await Promise.race([(async () => call(native, directory))(), promise]) };
  } catch (error) {
    return { error, result: null };
  } finally {
    clearTimeout(timer);
  }
}

function fresh(): void {
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory);
  chmodSync(directory, 0o777);
  prepare(directory);
}

type Tree = Readonly<Record<string, string>>;

function look(): Tree {
  const entries = readdirSync(directory, { withFileTypes: true, recursive: true });
  return Object.fromEntries(
    entries.map((entry) => {
      const path = join(entry.parentPath, entry.name);
      const { mode, uid, gid } = lstatSync(path);
      const content = entry.isFile()
        ? readFileSync(path, 'latin1')
        : entry.isSymbolicLink()
          ? readlinkSync(path)
          : '';
      return [path.slice(directory.length), `${mode.toString(8)} ${uid}:${gid} ${content}`];
    }),
  );
}

/** What the process has open, without numbers, its threads and its children. */
function held(): string[] {
  const descriptors = readdirSync('/proc/self/fd').flatMap((name) => {
    try {
      return [readlinkSync(`/proc/self/fd/${name}`).replace(/\d+/g, '')];
    } catch {
      // That of the listing itself.
      return [];
    }
  });
  const threads = readdirSync('/proc/self/task').map(() => 'thread');
  const children = readFileSync(`/proc/self/task/${process.pid}/children`, 'utf8').trim().split(' ');
  return [...descriptors, ...threads, ...children.filter(Boolean).map(() => 'child')];
}

/** Waits until no more is held than before; returns what is, or null. */
async function left(before: readonly string[]): Promise<string | null> {
  for (let tries = 0; ; tries++) {
    const missing = [...before];
    const more = held().filter(
      (one) => missing.indexOf(one) < 0 || missing.splice(missing.indexOf(one), 1).length === 0,
    );
    if (more.length === 0) return null;
    if (tries === MOST_TRIES) return `leaves ${more}`;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

function problemWith(
  operation: Operation,
  outcome: Outcome,
  failed: string,
  good: Outcome,
  trees: readonly Tree[],
): string | null {
  const { error, result } = outcome;
  const now = look();
  if (error !== null && !(error instanceof Error && 'code' in error && 'syscall' in error))
    return `throws ${error}`;
  if (error === null && !isDeepStrictEqual(result, good.result) && !operation.mayBe?.(result, failed))
    return `returns ${JSON.stringify(result)}`;
  const isSuccess = error === null && isDeepStrictEqual(result, good.result);
  const allowed = isSuccess ? trees.slice(1) : trees;
  const paths = new Set([now, ...trees].flatMap((tree) => Object.keys(tree)));
  const changed = [...paths].filter((path) => allowed.every((tree) => tree[path] !== now[path]));
  const others = changed.filter((path) => isSuccess || !operation.mayLeave?.test(path));
  if (others.length === 0) return null;
  return `${isSuccess ? 'succeeds' : 'fails'} and leaves ${others.map((path) => `${path}: ${now[path]}`)}`;
}

async function sweep(operation: Operation): Promise<void> {
  fresh();
  const before = look();
  // Twice, as some things are opened once for good.
  await outcomeOf(operation);
  fresh();
  const good = await outcomeOf(operation);
  const trees = [before, look()];
  if (good.error) throw good.error;
  await new Promise((resolve) => setTimeout(resolve, 50));
  const kept = held();
  const problems: string[] = [];
  let faults = 0;
  for (const error of errors.split(',') as (keyof typeof constants.errno)[]) {
    for (let number = 1; number <= MOST_POINTS; number++) {
      fresh();
      arm(error, number);
      const outcome = await outcomeOf(operation);
      const failed = disarm();
      if (failed === null) break;
      faults++;
      const problem = problemWith(operation, outcome, failed, good, trees) ?? (await left(kept));
      if (problem) problems.push(`${error} of ${failed} (${number}): ${problem}`);
    }
  }
  process.stdout.write(`${JSON.stringify({ name: operation.name, faults, problems })}\n`);
}

for (const operation of OPERATIONS) await sweep(operation);
process.exit(0);
