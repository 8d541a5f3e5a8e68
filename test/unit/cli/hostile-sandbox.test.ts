import { symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { expect, test } from 'vitest';
import type { Connection } from '../../../src/cli/connection/connection.ts';
import { Printer } from '../../../src/cli/output/printer.ts';
import { Progress } from '../../../src/cli/output/progress.ts';
import { loginShell } from '../../../src/cli/process/login-shell.ts';
import { Copier } from '../../../src/cli/transfer/copy.ts';
import { Excludes } from '../../../src/cli/transfer/excludes.ts';
import type { SourceTree, TreeItem } from '../../../src/cli/transfer/item.ts';
import { LocalTree } from '../../../src/cli/transfer/local-tree.ts';
import { RemoteTree } from '../../../src/cli/transfer/remote-tree.ts';
import { UnfinishedFiles } from '../../../src/cli/transfer/unfinished-files.ts';
import { scratch } from '../../support/machine/scratch.ts';

const MIB = 1024 * 1024;

/** Yields this many pieces of a MiB, and counts those that were asked for. */
function pieces(most: number) {
  const asked = { count: 0 };
  const all = (function* () {
    for (; asked.count < most; asked.count++) yield Buffer.alloc(MIB, '\n');
  })();
  return { asked, all };
}

const itemOf = (names: readonly string[]): TreeItem => ({
  ...{ names, kind: 'file', size: 10, mode: 0o644, modified: 0 },
  ...{ target: null, identity: null, isSparse: false },
});

test.each(['.envctlignore', '.gitignore'])('patterns in %s are not read beyond their limit', async (name) => {
  const { asked, all } = pieces(100);
  const source = { open: async () => Readable.from(all, { highWaterMark: 1 }) } as unknown as SourceTree;
  const read = new Excludes([], true).ofSource(source, [itemOf([name])]);
  await expect(read).rejects.toThrow(`${name} has more than ${MIB} bytes of patterns`);
  expect(asked.count).toBeLessThan(10);
});

test('what a sandbox tells as the shell of the user is not read without an end', async () => {
  const { asked, all } = pieces(100);
  const start = async function* () {
    for (const value of all)
      yield { event: { event: { case: 'data', value: { output: { case: 'stdout', value } } } } };
  };
  const connection = { processes: { start } } as unknown as Connection;
  expect(await loginShell(connection)).toBe('/bin/sh');
  expect(asked.count).toBeLessThan(10);
});

const progress = new Progress(new Printer(process.stdout, process.stderr));

test('the content of a file that cannot be written is not waited for', async () => {
  const root = scratch();
  symlinkSync('/', join(root, 'link'));
  const content = Readable.from([]);
  const source = { label: ':', open: async () => content } as unknown as SourceTree;
  const destination = new LocalTree(root, new UnfinishedFiles());
  const copier = new Copier(source, destination, { parallel: 1, progress, skip: () => {} });
  await expect(copier.items([itemOf(['link', 'x'])])).rejects.toThrow('is a link, which is not followed');
  expect(content.destroyed).toBe(true);
});

test('neither is that of a large file', async () => {
  const large = { ...itemOf(['large']), size: 9 * MIB };
  const answers: Readable[] = [];
  const send = async () => {
    const answer = Object.assign(Readable.from([]), { headers: { etag: '"1"' }, statusCode: 200 });
    answers.push(answer);
    return answer;
  };
  const source = new RemoteTree({ http: { send }, fileQuery: () => ({}) } as unknown as Connection, '/');
  // Nobody can make a file there.
  const destination = new LocalTree('/proc/self', new UnfinishedFiles());
  const copier = new Copier(source, destination, { parallel: 1, progress, skip: () => {} });
  await expect(copier.file(large, ['large'])).rejects.toMatchObject({ reason: 'not_found' });
  expect(answers.map(({ destroyed }) => destroyed)).toEqual([true, true]);
});
