import { linkSync, mkdirSync, readdirSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { post } from '../../support/clients/files-client.ts';
import { openFiles } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { seal } from '../../support/services/tar-archive.ts';
import { describeTree, tar } from '../../support/services/tar-trees.ts';

/* Archives with mutations: the daemon stays well, and nothing outside of the directory changes. */

const RUNS = 150;

let daemon: TestDaemon;
const at = (...names: readonly string[]) => join(daemon.scratch, ...names);

beforeAll(async () => {
  daemon = await startDaemon();
  mkdirSync(at('from/d'), { recursive: true });
  mkdirSync(at('outside'));
  writeFileSync(at('outside/file'), 'secret');
  writeFileSync(at('from/d/file'), 'content');
  linkSync(at('from/d/file'), at('from/hard'));
  symlinkSync('../outside', at('from/link'));
  writeFileSync(at('from', 'n'.repeat(150)), 'x'.repeat(1000));
  writeFileSync(at('from/large'), 'start');
  truncateSync(at('from/large'), 100_000);
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

interface Mutation {
  readonly at: number;
  readonly byte: number;
  /** Whether the block gets a right checksum again. */
  readonly isSealed: boolean;
}

function mutate(archive: Buffer, mutations: readonly Mutation[], length: number): Buffer {
  const mutated = Buffer.from(archive);
  for (const { at: position, byte, isSealed } of mutations) {
    const offset = position % mutated.length;
    mutated[offset] = byte;
    const block = offset - (offset % 512);
    if (isSealed) seal(mutated.subarray(block, block + 512));
  }
  return mutated.subarray(0, Math.floor(mutated.length * length));
}

/** Bytes that mean something in headers, more often than others. */
const byte = fc.oneof(
  fc.constantFrom(
    0,
    0x20,
    0x2e,
    0x2f,
    0x30,
    0x31,
    0x32,
    0x35,
    0x37,
    0x3d,
    0x4c,
    0x53,
    0x67,
    0x78,
    0x80,
    0xff,
  ),
  fc.nat(255),
);
const mutations = fc.array(fc.record({ at: fc.nat(40_000), byte, isSealed: fc.boolean() }), { maxLength: 8 });

test.each(['gnu', 'posix'])('of tar’s format %s', async (format) => {
  const archive = tar(`--format=${format}`, '--no-xattrs', '-b1', '-C', at('from'), '-cf', '-', '.');
  const untouched = describeTree(at('outside'));
  const names = readdirSync(daemon.scratch);
  const statuses = new Set<number>();
  await fc.assert(
    fc.asyncProperty(mutations, fc.constantFrom(1, 1, 1, 0.5, 0.9), async (changes, length) => {
      const body = new Uint8Array(mutate(archive, changes, length));
      const answer = await post(daemon, { path: at('to') }, { 'content-type': 'application/x-tar' }, body);
      statuses.add(answer.status);
      expect([200, 400, 404, 412]).toContain(answer.status);
      expect(describeTree(at('outside'))).toEqual(untouched);
      const left = readdirSync(at('to'), { recursive: true, encoding: 'latin1' });
      expect(left.filter((name) => name.includes('.envd-'))).toEqual([]);
      rmSync(at('to'), { recursive: true, force: true });
      expect(readdirSync(daemon.scratch)).toEqual(names);
    }),
    { numRuns: RUNS },
  );
  expect(statuses).toContain(200);
  expect(statuses).toContain(400);
  expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
  await expect.poll(() => openFiles(daemon.pid).filter((path) => path.startsWith(at('to')))).toEqual([]);
});
