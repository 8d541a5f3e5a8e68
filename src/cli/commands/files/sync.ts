import { readFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { failureOf } from '../../connection/failures.ts';
import { Failure, usageError } from '../../output/failure.ts';
import { counted } from '../../output/formats.ts';
import { Progress } from '../../output/progress.ts';
import { Copier, isOfItem } from '../../transfer/copy.ts';
import { Excludes } from '../../transfer/excludes.ts';
import type { SourceTree, TreeItem } from '../../transfer/item.ts';
import { readPlace } from '../../transfer/place.ts';
import { planSync, type SyncPlan } from '../../transfer/sync.ts';
import type { Call } from '../spec/call.ts';
import { defineCommand } from '../spec/command.ts';
import { copyOptions, PARALLEL_OPTION, PLACES, RESULT_SHAPE, Trees, tellTotal } from './copy.ts';

/** Changes are collected for this time before they are transferred, in milliseconds. */
const COLLECT_MS = 200;

/** With --watch, a transfer that fails is tried again after this time, in milliseconds. */
const RETRY_MS = 1000;
/** It is tried again so many times in a row; then the command ends with the error. */
const MOST_RETRIES = 10;

interface SyncOptions {
  readonly delete?: boolean;
  readonly checksum?: boolean;
  readonly dryRun?: boolean;
  readonly watch?: boolean;
  readonly exclude?: readonly string[];
  readonly excludeFrom?: readonly string[];
  readonly gitignore?: boolean;
  readonly parallel?: number;
}

export const syncCommand = defineCommand<SyncOptions>({
  name: 'sync',
  summary: 'Make a directory as another one is, by transferring what differs',
  examples: ['envctl sync --delete --gitignore . :project', 'envctl sync --watch src :src'],
  details: [
    PLACES,
    'The content of SOURCE is compared with that of DESTINATION. Files of the same size and time are the same; if only the times differ, digests decide where the daemon tells them. A file for which nothing tells is transferred. Where only the mode differs, only the mode is set.',
    'A file or a link gives way to whatever SOURCE has at its place, and with --delete a directory does too. An entry that fails is told and left, and the others go on.',
    'What is left out is neither transferred nor removed. Patterns are those of gitignore(5). Those of a file .envctlignore in SOURCE count too.',
  ],
  arguments: [
    { name: 'source', help: 'a directory', completes: 'place' },
    { name: 'destination', help: 'a directory, which is made if it is missing', completes: 'place' },
  ],
  options: [
    {
      flags: '--delete',
      help: 'remove what the source does not have, and replace directories by files and links',
    },
    { flags: '-c, --checksum', help: 'compare the digests of all files' },
    { flags: '-n, --dry-run', help: 'only say what would be done' },
    { flags: '-w, --watch', help: 'go on, and transfer what changes' },
    {
      flags: '--exclude <pattern>',
      help: 'leave out what matches, as in .gitignore; may be given several times',
      isRepeated: true,
    },
    {
      flags: '--exclude-from <file>',
      help: 'leave out what the patterns of this file match',
      isRepeated: true,
      completes: 'file',
    },
    { flags: '--gitignore', help: 'leave out .git, and what the .gitignore files of SOURCE say' },
    PARALLEL_OPTION,
  ],
  json: `${RESULT_SHAPE} with "modes", "removed", "same" and "failed"; with --dry-run {"transfer":[PATH],"modes":[PATH],"remove":[PATH],"same"}`,
  async run(call, options) {
    const [source, destination] = [readPlace(call.argument(0)), readPlace(call.argument(1))];
    if (source.side === 'local' && destination.side === 'local')
      throw usageError('both are on this machine: a path in the sandbox begins with a colon');
    const trees = new Trees(call);
    const from = await trees.at(source);
    await requireDirectory(from);
    const patterns = await patternsOf(options);
    const once = async () => {
      const excludes = new Excludes(patterns, options.gitignore ?? false);
      await synchronize(call, { source: from, destination: await trees.at(destination), excludes }, options);
    };
    if (options.watch) await follow(call, from, once);
    else await once();
    return 0;
  },
});

async function patternsOf({ exclude = [], excludeFrom = [] }: SyncOptions): Promise<string[]> {
  const files = excludeFrom.map((path) =>
    readFile(path, 'utf8').catch((error: Error) => {
      throw usageError(`cannot read --exclude-from ${path}: ${error.message}`);
    }),
  );
  return [...(await Promise.all(files)), ...exclude];
}

async function requireDirectory(tree: SourceTree): Promise<void> {
  if ((await tree.root())?.kind !== 'directory')
    throw new Failure('not_found', `${tree.label} is not a directory`);
}

/**
 * Synchronizes now and after each change. After an error it watches anew, because files vanish while they are transferred, and
 * a source that was removed or renamed may come back. Throws `Failure` when errors do not end.
 */
async function follow({ output }: Call, source: SourceTree, once: () => Promise<void>): Promise<void> {
  for (let failures = 0; ; failures++) {
    try {
      await requireDirectory(source);
      let isWatched = false;
      for await (const _ of changesOf(source)) {
        if (!isWatched) output.note({ style: 'dim', text: '[watching]' });
        isWatched = true;
        await once();
        failures = 0;
      }
    } catch (error) {
      const failure = failureOf(error, 'the daemon');
      if (failure.reason !== 'failed' && failure.reason !== 'not_found') throw failure;
      if (failures === MOST_RETRIES) throw failure;
      output.warn(`${failure.message}; it is tried again`);
    }
    await delay(RETRY_MS);
  }
}

async function synchronize(
  call: Call,
  trees: Parameters<typeof planSync>[0],
  options: SyncOptions,
): Promise<void> {
  const { source, destination } = trees;
  const { output } = call;
  const plan = await planSync(trees, options);
  const { remove, transfer, modes, same } = plan;
  if (options.dryRun) return tellPlan(call, plan);
  const progress = new Progress(output);
  let failed = 0;
  const fail = (item: TreeItem, { message }: Failure) => {
    failed++;
    output.warn(`left ${pathOf(item)} as it was: ${message}`);
  };
  for (const [item, why] of plan.blocked) fail(item, new Failure('failed', why));
  const moved: string[] = [];
  const copier = new Copier(source, destination, {
    ...copyOptions(call, progress, options.parallel),
    fail,
    done: (item) => moved.push(`transfer  ${pathOf(item)}`),
  });
  let removed = 0;
  try {
    for (const item of remove)
      await destination.remove(item.names).then(
        () => {
          removed++;
          moved.push(`remove    ${pathOf(item)}`);
        },
        (error) => {
          const failure = failureOf(error, 'the daemon');
          if (!isOfItem(failure)) throw failure;
          fail(item, failure);
        },
      );
    await destination.makeDirectory([]);
    if (transfer.length > 0) await copier.items(transfer);
    await copier.setModes(modes);
  } finally {
    progress.end();
  }
  const total = copier.result;
  // The names are printed after the bar of the progress has gone.
  if (options.watch) for (const line of moved) output.note(line);
  if (output.isJson) {
    const seconds = Number(progress.seconds.toFixed(3));
    await output.json({ ...total, modes: modes.length, removed, same, failed, seconds });
  } else if (!options.watch || moved.length > 0) {
    await tellTotal(call, total, progress);
    if (removed > 0) output.note(`${removed} removed`);
  }
  // What is watched is compared again after the next change.
  if (failed > 0 && !options.watch)
    throw new Failure('failed', `${counted(failed, 'entry', 'entries')} could not be synchronized`);
}

function pathOf({ names }: { readonly names: readonly string[] }): string {
  return names.join('/');
}

async function tellPlan({ output }: Call, { remove, transfer, modes, same }: SyncPlan): Promise<void> {
  const paths = { transfer: transfer.map(pathOf), modes: modes.map(pathOf), remove: remove.map(pathOf) };
  await output.result({ ...paths, same }, async () => {
    for (const path of paths.remove) await output.line('remove   ', path);
    for (const path of paths.transfer) await output.line('transfer ', path);
    for (const path of paths.modes) await output.line('mode     ', path);
  });
}

/**
 * Yields when the source is watched, and then after changes of it, once for all that come within `COLLECT_MS`. Throws when it
 * is not watched any more.
 */
async function* changesOf(source: SourceTree): AsyncGenerator<void> {
  const changes = new Changes();
  const left = new AbortController();
  const collect = async () => {
    for await (const _ of source.changes(left.signal)) changes.add();
    throw new Failure('failed', `${source.label} is not watched any more: was it removed?`);
  };
  collect().catch((error: unknown) => changes.fail(error));
  try {
    for (;;) {
      await changes.next();
      yield;
    }
  } finally {
    left.abort();
  }
}

/** Collects changes until they are asked for. */
class Changes {
  #came = Promise.withResolvers<void>();
  #timer: NodeJS.Timeout | undefined;
  #end: { readonly error: unknown } | null = null;

  add(): void {
    // Further changes do not restart the timer, because some directories change all the time.
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.#came.resolve();
    }, COLLECT_MS);
  }

  fail(error: unknown): void {
    this.#end = { error };
    this.#came.resolve();
  }

  /** Resolves when changes have come. Throws the error of the watch when no more can come. */
  async next(): Promise<void> {
    await this.#came.promise;
    if (this.#end) throw this.#end.error;
    this.#came = Promise.withResolvers();
  }
}
