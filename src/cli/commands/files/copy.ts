import { parseCount } from '../../../base/program/settings.ts';
import type { Connection } from '../../connection/connection.ts';
import { Failure, usageError } from '../../output/failure.ts';
import { counted, formatBytes } from '../../output/formats.ts';
import { printable } from '../../output/printable.ts';
import { Progress } from '../../output/progress.ts';
import { Copier, type CopyOptions, type CopyResult } from '../../transfer/copy.ts';
import { type DestinationTree, itemsOf, type SourceTree, type TreeItem } from '../../transfer/item.ts';
import { LocalTree } from '../../transfer/local-tree.ts';
import { baseName, type FilePlace, joinPath, readPlace } from '../../transfer/place.ts';
import { RemoteTree } from '../../transfer/remote-tree.ts';
import { UnfinishedFiles } from '../../transfer/unfinished-files.ts';
import type { Call } from '../spec/call.ts';
import { defineCommand } from '../spec/command.ts';
import type { OptionSpec } from '../spec/description.ts';
import { copyToOutput, isStandard, pipeAt, uploadPipe } from './copy-pipe.ts';

const DEFAULT_PARALLEL = 8;
/** One copy may have this many connections to one daemon. */
const MOST_PARALLEL = 64;

export const PARALLEL_OPTION: OptionSpec = {
  flags: '-P, --parallel <number>',
  help: `transfers at a time; default: ${DEFAULT_PARALLEL}`,
  parse: parseCount,
};

/** The help of every transfer explains paths with this text. */
export const PLACES =
  ':PATH is in the sandbox, CONTEXT:PATH in that of a context, ID:PATH in that sandbox of the gateway, and everything else on this machine.';

export const RESULT_SHAPE = '{"files","directories","links","bytes","skipped","seconds"}';

type Tree = SourceTree & DestinationTree;

/** Opens the trees of one call, with one connection to each sandbox. */
export class Trees {
  readonly #call: Call;
  readonly #connections = new Map<string | null, Promise<Connection>>();
  readonly #unfinished = new UnfinishedFiles();

  constructor(call: Call) {
    this.#call = call;
  }

  async at(place: FilePlace): Promise<Tree> {
    if (place.side === 'local') return new LocalTree(place.path, this.#unfinished);
    const { context } = place;
    const known = this.#connections.get(context);
    const connecting =
      known ?? (context === null ? this.#call.connection() : this.#call.connectionByName(context));
    this.#connections.set(context, connecting);
    return new RemoteTree(await connecting, place.path || '.');
  }
}

/** Returns the options of a transfer for the options of a command. */
export function copyOptions(call: Call, progress: Progress, parallel = DEFAULT_PARALLEL): CopyOptions {
  const skip = ({ names }: TreeItem, why: string) => call.output.warn(`left out ${names.join('/')}: ${why}`);
  return { parallel: Math.min(parallel, MOST_PARALLEL), progress, skip };
}

export const cpCommand = defineCommand<{ readonly parallel?: number }>({
  name: 'cp',
  summary: 'Copy files and directories to a sandbox, from it, or between two',
  examples: [
    'envctl cp notes.txt :',
    'envctl cp :results .',
    'envctl cp - :data.json',
    'envctl cp ID:/var/log/syslog .',
  ],
  details: [
    PLACES,
    'A directory is copied with everything below. If the destination is a directory, the copy is made in it. Files larger than 8 MiB from a sandbox, and larger than 64 MiB to it, go on where they broke off when the same command is given again.',
    'As a source, - is standard input, and as the destination standard output. What comes by a pipe, as from <(COMMAND), is copied to its end.',
    'Symbolic links of a sandbox are left out, and never followed. To envd, a directory goes as one archive, which keeps links, modes and times. Holes of a file and its names (hard links) that are copied together are kept both ways.',
  ],
  arguments: [
    {
      name: 'path',
      help: 'what to copy, and where to as the last one',
      isVariadic: true,
      completes: 'place',
    },
  ],
  options: [
    PARALLEL_OPTION,
    { flags: '-r, --recursive', help: 'changes nothing: directories are copied with everything below' },
  ],
  json: RESULT_SHAPE,
  async run(call, { parallel }) {
    const places = call.arguments.map(readPlace);
    const destination = places.pop();
    if (!destination || places.length === 0) throw usageError('give a source and a destination');
    if ([destination, ...places].every(({ side }) => side === 'local'))
      throw usageError('both are on this machine: a path in the sandbox begins with a colon');
    const trees = new Trees(call);
    const progress = new Progress(call.output);
    const options = copyOptions(call, progress, parallel);
    if (isStandard(destination)) {
      await copyToOutput(call, await Promise.all(places.map((place) => trees.at(place))));
      return 0;
    }
    const total: CopyResult = { files: 0, directories: 0, links: 0, bytes: 0, skipped: 0 };
    try {
      for (const source of places) {
        const pipe = await pipeAt(call, source);
        const result = pipe
          ? await uploadPipe(pipe, await trees.at(destination), destination.path, progress)
          : await copyOne(trees, source, destination, places.length > 1, options);
        for (const name of Object.keys(total) as (keyof CopyResult)[]) total[name] += result[name];
      }
    } finally {
      progress.end();
    }
    await tellTotal(call, total, progress);
    return 0;
  },
});

export async function tellTotal({ output }: Call, total: CopyResult, { seconds }: Progress): Promise<void> {
  await output.result({ ...total, seconds: Number(seconds.toFixed(3)) }, async () =>
    output.note(
      `${counted(total.files, 'file')}, ${formatBytes(total.bytes)} in ${seconds.toFixed(1)} s (${formatBytes(total.bytes / Math.max(seconds, 0.001))}/s)`,
    ),
  );
}

async function copyOne(
  trees: Trees,
  source: FilePlace,
  destination: FilePlace,
  isOneOfSeveral: boolean,
  options: CopyOptions,
): Promise<CopyResult> {
  const from = await trees.at(source);
  const item = await from.root();
  if (!item) throw new Failure('not_found', `${printable(from.label)} does not exist`);
  const there = await (await trees.at(destination)).root();
  const isInto = there?.kind === 'directory' || destination.path.endsWith('/');
  if (isOneOfSeveral && there?.kind !== 'directory')
    throw usageError(`${destination.path} is not a directory: several sources need one`);
  const name = baseName(source.path);
  const path = isInto && name !== '' ? joinPath(destination.path || '.', name) : destination.path;
  const to = await trees.at({ ...destination, path });
  const copier = new Copier(from, to, options);
  if (item.kind === 'file') await copier.file(item, []);
  else if (item.kind === 'directory') await copyTree(copier, from, to);
  else throw usageError(`${from.label} is neither a file nor a directory`);
  return copier.result;
}

async function copyTree(copier: Copier, from: SourceTree, to: DestinationTree): Promise<void> {
  const items = await itemsOf(from);
  await to.makeDirectory([]);
  await copier.tree(items);
}
