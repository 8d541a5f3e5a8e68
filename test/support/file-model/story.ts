// Plays one story: makes the tree, then each operation in the model and in the daemon, and compares.
import { expect } from 'vitest';
import { CALLERS, type OperationSpec, type PlantSpec } from './arbitraries.ts';
import { type Answer, type Calls, CONTENT } from './calls.ts';
import type { Disk } from './disk.ts';
import type { Garden } from './garden.ts';
import * as model from './operations.ts';
import { type Bytes, type Directory, pathOf, walkTree } from './tree.ts';
import { isFailure, resolve } from './walk.ts';

export interface Stage {
  readonly disk: Disk;
  readonly garden: Garden;
  readonly callsOf: (user: keyof typeof CALLERS) => Calls;
}

/** How often each operation was played with each result. */
export type Played = Map<string, number>;

const READS: readonly OperationSpec['kind'][] = ['Stat', 'ListDir', 'download', 'watch'];

export async function play(
  stage: Stage,
  story: { readonly plants: readonly PlantSpec[]; readonly operations: readonly OperationSpec[] },
  played: Played,
): Promise<void> {
  stage.garden.grow(story.plants);
  compareTrees(stage.disk, 'before');
  for (const operation of story.operations) await playOne(stage, operation, played);
}

function compareTrees(disk: Disk, when: string): void {
  const [expected, found] = disk.both();
  expect(found, when).toEqual(expected);
}

async function playOne(stage: Stage, operation: OperationSpec, played: Played): Promise<void> {
  const { disk, garden } = stage;
  const paths = [operation.path, operation.second, operation.third].map((spec) => garden.clientPath(spec));
  const [path, second, third] = paths;
  if (!path || !second || !third) throw new Error('three were made');
  if (!paths.every((each) => isInside(disk, each.path, operation.kind))) return;

  const called = `${operation.kind} ${paths.map(({ sent }) => sent).join(' ; ')} by ${operation.caller}`;
  const text = `${called}\n${draw(disk)}\n`;
  const expected = predict(disk, operation, path.path, second.path, third.path);
  const answer = await stage.callsOf(operation.caller).make(operation, path.sent, second.sent, third.sent);
  const refusedPartly = typeof expected === 'object' && 'partlyBelow' in expected;
  const code = typeof expected === 'string' ? expected : refusedPartly ? 'permission_denied' : 'ok';
  if (answer.code !== code) expect(answer, text).toEqual({ ...answer, code });
  if (refusedPartly) acceptRemoved(disk, path.path);
  else if (typeof expected === 'object') compareAnswers(answer, expected, text);
  compareTrees(disk, text);
  const key = `${operation.kind} ${code}`;
  played.set(key, (played.get(key) ?? 0) + 1);
}

/** The tree, for the text of a failure. */
function draw(disk: Disk): string {
  return Object.entries(disk.both()[0])
    .map(([path, node]) => `${path.slice(disk.base.length)} ${node}`.replace(/([np/.])\1{20,}/g, '$1…'))
    .join('\n');
}

type Prediction =
  | model.Code
  | { content: string }
  | readonly model.Described[]
  | ReturnType<typeof model.remove>;

function predict(
  disk: Disk,
  { kind, caller, metadata }: OperationSpec,
  path: Bytes,
  second: Bytes,
  third: Bytes,
): Prediction {
  const { world } = disk;
  const user = CALLERS[caller];
  switch (kind) {
    case 'Stat': {
      const entry = model.stat(world, path);
      return typeof entry === 'string' ? entry : [entry];
    }
    case 'ListDir':
      return model.listDir(world, path);
    case 'watch':
      return model.watch(world, path);
    case 'download':
      return model.download(world, path);
    case 'MakeDir':
      return model.makeDir(world, path, user);
    case 'Move':
      return model.move(world, path, second, user);
    case 'Remove':
      return model.remove(world, path);
    case 'upload':
    case 'multipart':
      return model.upload(world, path, user, { content: CONTENT, metadata });
    case 'compose':
      return model.compose(world, [path], second, user);
    case 'compose two':
      return model.compose(world, [path, third], second, user);
  }
}

function compareAnswers(answer: Answer, expected: Exclude<Prediction, string>, text: string): void {
  if ('content' in expected) expect(answer.content, text).toBe(expected.content);
  else expect(answer.entries, text).toEqual(expected);
}

function longest({ top, base }: Disk): number {
  return Math.max(...[...walkTree(top, base)].map(([path]) => path.length));
}

/** Whether the operation stays in the tree: what it changes is not above it, and it does not look at others' files. */
function isInside(disk: Disk, path: Bytes, kind: OperationSpec['kind']): boolean {
  const { world, top } = disk;
  return [true, false].every((follows) => {
    const place = resolve(world, path, follows);
    if (isFailure(place)) return true;
    const { directory, node } = place;
    if (READS.includes(kind)) return node?.kind !== 'directory' || isBelow(node, top);
    if (directory.isProc) return node?.kind === 'file' && kind.startsWith('upload');
    if (directory === top || !isBelow(directory, top)) return false;
    // Else what is made, or moved there, could not be looked at.
    const made = [pathOf(directory, world.root), ...place.missing, place.name].join('/');
    return made.length + (kind === 'Move' ? longest(disk) : 0) <= 4095;
  });
}

function isBelow(directory: Directory, top: Directory): boolean {
  for (let each = directory; ; each = each.parent) {
    if (each === top) return true;
    if (each.parent === each) return false;
  }
}

/** After a refusal some of the entries may be gone: those that the link's owner may remove himself. */
function acceptRemoved(disk: Disk, path: Bytes): void {
  const place = resolve(disk.world, path, false);
  if (isFailure(place)) throw new Error('resolved before');
  const gone = [...disk.prune(disk.top, disk.base)];
  for (const [directory, name, node] of gone) {
    const own = place.directory.entries.get(place.name);
    expect(own?.kind === 'directory' && node !== own && isBelow(directory, own), 'what is gone').toBe(true);
    expect(model.isRemovable(disk.world, place, directory, name), 'what is gone').toBe(true);
  }
  for (const [directory, name] of gone) directory.entries.delete(name);
}
