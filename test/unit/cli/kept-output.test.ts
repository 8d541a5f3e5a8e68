import { Readable } from 'node:stream';
import { expect, test, vi } from 'vitest';
import { logsCommand } from '../../../src/cli/commands/process/logs.ts';
import type { Call } from '../../../src/cli/commands/spec/call.ts';
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

test.each([{}, { tail: 9 }])('logs %j shows all that is kept, however long that takes', async (options) => {
  const shown: object[] = [];
  const result = {
    pid: 7,
    tag: null,
    end: { exitCode: 3, exited: true, status: '', error: null, signal: null },
  };
  const connection = {
    ...{ processes: { connect: () => Readable.from([], {}).destroy(UNKNOWN) }, failure: async () => UNKNOWN },
    http: {
      json: async () => ({ ...result, streams: { stdout: { droppedBytes: 0 } } }),
      send: async () => Readable.from(['a', 'b', 'c'].map(Buffer.from)),
    },
  };
  const call = {
    ...{ connection: async () => connection, argument: () => '7', leaving: undefined },
    output: { isJson: true, json: async (value: object) => void shown.push(value) },
  } as unknown as Call;
  let now = 0;
  // The link is slow: each look at the clock is a minute later.
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => (now += 60_000));
  await logsCommand.run(call, options).finally(() => clock.mockRestore());
  const text = shown.map((each) => ('data' in each ? atob(String(each.data)) : '')).join('');
  expect([text, shown.at(-1)]).toEqual(['abc', expect.objectContaining({ event: 'end', exitCode: 3 })]);
});
