import { expect, test } from 'vitest';
import type { Connection } from '../../../src/cli/connection/connection.ts';
import { Failure } from '../../../src/cli/output/failure.ts';
import type { FollowEvent } from '../../../src/cli/process/follow.ts';
import { orKept } from '../../../src/cli/process/kept-output.ts';

const UNKNOWN = new Failure('not_found', 'process with tag 7 not found');

/** Reads a process that the daemon does not know any more. It keeps the output of the process with the pid 7. */
async function readKept(name: string): Promise<FollowEvent[]> {
  const result = { pid: 7, tag: 'build', end: null, streams: {} };
  const connection: Connection = Object.assign(Object.create(null), { http: { json: async () => result } });
  const unknown = { [Symbol.asyncIterator]: () => ({ next: () => Promise.reject(UNKNOWN) }) };
  return await Array.fromAsync(orKept(unknown, connection, name));
}

test('what the daemon keeps of a process is told, by its pid and its tag', async () => {
  for (const name of ['7', 'build', 'tag:build'])
    expect(await readKept(name)).toEqual([{ type: 'started', pid: 7 }]);
});

test('a tag that is a number does not name the process with that pid', async () => {
  await expect(readKept('tag:7')).rejects.toBe(UNKNOWN);
});
