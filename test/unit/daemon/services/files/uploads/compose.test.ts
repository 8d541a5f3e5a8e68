import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { type FindOptions, Lanes } from '../../../../../../src/daemon/linux/lanes/lanes.ts';
import { composeFile } from '../../../../../../src/daemon/services/files/uploads/compose.ts';
import { scratch } from '../../../../../support/machine/scratch.ts';
import { NEVER } from '../../../../../support/services/lanes.ts';

const ROOT = { uid: 0, gid: 0, name: 'root', home: '/root', groups: [0], shell: '/bin/sh' };

/** Calls `before` before the n-th look-up. */
class InterruptedLanes extends Lanes {
  #lookUps = 0;
  readonly #before: (lookUp: number) => void;

  constructor(before: (lookUp: number) => void) {
    super({ limitMs: 10_000, threads: 4 });
    this.#before = before;
  }

  override find<T>(job: () => T | Promise<T>, options: FindOptions<T>) {
    this.#lookUps += 1;
    this.#before(this.#lookUps);
    return super.find(job, options);
  }
}

async function composeWith(directory: string, before: (lookUp: number) => void): Promise<number> {
  const request = { sourcePaths: [join(directory, 'source')], destination: join(directory, 'all') };
  let lookUps = 0;
  const lanes = new InterruptedLanes((lookUp) => {
    lookUps = lookUp;
    before(lookUp);
  });
  await composeFile(request, ROOT, null, lanes, NEVER);
  return lookUps;
}

test('a source that is replaced at any moment is either composed as it was, or refused: never the other one', async () => {
  const outcomes = new Set<string>();
  const directory = scratch();
  writeFileSync(join(directory, 'source'), 'checked');
  const lookUps = await composeWith(directory, () => {});
  for (let moment = 1; moment <= lookUps; moment += 1) {
    const at = scratch();
    const [source, destination, other] = ['source', 'all', 'other'].map((name) => join(at, name)) as [
      string,
      string,
      string,
    ];
    writeFileSync(source, 'checked');
    writeFileSync(other, 'another');
    const outcome = await composeWith(at, (lookUp) => {
      if (lookUp === moment) renameSync(other, source);
    }).then(
      () => readFileSync(destination, 'utf8'),
      (error: Error) => error.message,
    );
    outcomes.add(outcome.replace(at, ''));
    // What was never checked is not lost, unless it came before the first look.
    if (outcome !== 'another') expect(readFileSync(source, 'utf8')).toBe('another');
    if (outcome.startsWith('source')) expect(existsSync(destination)).toBe(false);
  }
  const refused = "source '/source' was replaced by another file while it was read";
  expect(outcomes).toEqual(new Set(['another', refused, 'checked']));
});
