import type { EntryInfo } from '../../../gen/filesystem/filesystem_pb.js';
import type { Connection } from '../../connection/connection.ts';
import { Failure } from '../../output/failure.ts';
import { formatBytes, formatTime } from '../../output/formats.ts';
import type { Piece } from '../../output/printer.ts';
import { requireDepth } from '../../transfer/item.ts';
import { joinPath, remotePath } from '../../transfer/place.ts';
import { entryType, kindOf, listDirectory, statOrNull } from '../../transfer/remote-tree.ts';
import type { Call } from '../spec/call.ts';
import { defineCommand } from '../spec/command.ts';
import type { ArgumentSpec } from '../spec/description.ts';

/** An argument that is a path in a sandbox. */
export const PATH_ARGUMENT: ArgumentSpec = {
  name: 'path',
  help: "a path in the sandbox, below the user's home if it is not absolute",
  completes: 'path',
};

interface ListOptions {
  readonly long?: boolean;
  readonly recursive?: boolean;
  readonly bytes?: boolean;
}

export const lsCommand = defineCommand<ListOptions>({
  name: 'ls',
  summary: 'List files',
  examples: ['envctl ls', 'envctl ls -l :/etc'],
  arguments: [{ ...PATH_ARGUMENT, isOptional: true, isVariadic: true }],
  options: [
    { flags: '-l, --long', help: 'with permissions, owner, size and time' },
    { flags: '-R, --recursive', help: 'with everything below; links are not followed' },
    { flags: '-b, --bytes', help: 'sizes in bytes' },
    { flags: '-a, --all', help: 'changes nothing: hidden files are listed' },
    { flags: '-h, --human', help: 'changes nothing: sizes have units' },
  ],
  json: `one line per entry: ${describeShape()}`,
  async run(call, options) {
    const connection = await call.connection();
    const paths = call.arguments.length > 0 ? call.arguments.map(remotePath) : ['.'];
    for (const path of paths) await list(call, connection, path, options, paths.length > 1);
    return 0;
  },
});

function describeShape(): string {
  return '{"name","path","type":"file"|"directory"|"link"|"other","size","mode","permissions","owner","group","modified","target","metadata"}';
}

/** Returns an entry as JSON. `path` is the path as it was asked for. */
export function shapeOf(entry: EntryInfo, path: string) {
  const { name, size, mode, permissions, owner, group, modifiedTime, symlinkTarget, metadata } = entry;
  return {
    ...{ name, path, type: kindOf(entry), size: Number(size) },
    ...{ mode: mode.toString(8).padStart(4, '0'), permissions, owner, group },
    modified: modifiedTime ? timeOf(entry).toISOString() : null,
    target: leadsNowhere(entry) ? null : (symlinkTarget ?? null),
    metadata,
  };
}

async function list(
  call: Call,
  connection: Connection,
  path: string,
  options: ListOptions,
  isTitled: boolean,
): Promise<void> {
  const entry = await statOrNull(connection, path);
  if (!entry) throw new Failure('not_found', `path '${path}' does not exist`);
  if (entryType(entry) !== 'directory') return show(call, [[entry, path]], options, (_, shown) => shown);
  const isGrouped = (isTitled || options.recursive === true) && !call.output.isJson;
  const pending: (readonly string[])[] = [[]];
  for (let names = pending.pop(); names; names = pending.pop()) {
    requireDepth(names, connection.target.name);
    const here = joinPath(path, ...names);
    const entries = await listDirectory(connection, here);
    if (isGrouped) await call.output.line({ style: 'bold', text: `${here}:` });
    const listed = entries.map((one) => [one, joinPath(here, one.name)] as const);
    await show(call, listed, options, ({ name }) => name);
    if (isGrouped) await call.output.line();
    const below = options.recursive ? entries.filter((one) => kindOf(one) === 'directory') : [];
    for (const { name } of below.reverse()) pending.push([...names, name]);
  }
}

async function show(
  { output }: Call,
  entries: readonly (readonly [EntryInfo, path: string])[],
  { long, bytes }: ListOptions,
  nameOf: (entry: EntryInfo, path: string) => string,
): Promise<void> {
  if (output.isJson) {
    for (const [entry, path] of entries) await output.json(shapeOf(entry, path));
  } else if (!long) {
    for (const [entry, path] of entries) await output.line(named(entry, nameOf(entry, path)));
  } else {
    const rows = entries.map(([entry, path]): Piece[] => [
      entry.permissions,
      entry.owner,
      entry.group,
      bytes ? String(entry.size) : formatBytes(Number(entry.size)),
      formatTime(timeOf(entry)),
      withTarget(entry, nameOf(entry, path)),
    ]);
    const [left, right] = [{ title: '' }, { title: '', align: 'right' } as const];
    await output.table([left, left, left, right, left, left], rows, { hasTitles: false });
  }
}

/** Returns the name of an entry with its color. */
function named(entry: EntryInfo, name: string): Piece {
  const kind = kindOf(entry);
  if (kind === 'directory') return { style: 'blue', text: name };
  if (kind === 'link') return { style: 'cyan', text: name };
  return kind === 'file' && (entry.mode & 0o111) !== 0 ? { style: 'green', text: name } : name;
}

function withTarget(entry: EntryInfo, name: string): Piece {
  const piece = named(entry, name);
  if (entry.symlinkTarget === undefined || typeof piece === 'string') return piece;
  if (leadsNowhere(entry)) return { style: 'red', text: `${name} (a link that leads nowhere)` };
  return { ...piece, text: `${name} -> ${entry.symlinkTarget}` };
}

/** A daemon tells the path of the link itself as the target of one that leads nowhere. */
function leadsNowhere({ symlinkTarget, path }: EntryInfo): boolean {
  return symlinkTarget !== undefined && symlinkTarget === path;
}

function timeOf({ modifiedTime }: EntryInfo): Date {
  return new Date(modifiedTime ? Number(modifiedTime.seconds) * 1000 + modifiedTime.nanos / 1e6 : Number.NaN);
}
