import { expect, test } from 'vitest';
import { Quota } from '../../../../../src/base/quota.ts';
import { UserDatabase } from '../../../../../src/daemon/linux/system/users.ts';
import { Guest } from '../../../../../src/daemon/services/guest/guest.ts';
import { WorkloadCgroups } from '../../../../../src/daemon/services/process/cgroups/cgroups.ts';
import { ProcessTable } from '../../../../../src/daemon/services/process/table.ts';
import { testLanes } from '../../../../support/services/lanes.ts';

const RUNS = 200;
const users = new UserDatabase();
const table = new ProcessTable(new Guest(users), WorkloadCgroups.create(null), {
  path: '/usr/bin:/bin',
  historyBytes: 1024 * 1024,
  startTimeout: 10,
  maxProcesses: 1024,
  unread: new Quota(64 * 1024 * 1024),
  lanes: testLanes,
});
const LINES = Array.from({ length: 20_000 }, (_, index) => `${index + 1}`);

/** The output of `seq 1 20000`. */
async function count(terminal: boolean): Promise<Buffer> {
  using feed = await table.start(
    {
      config: { command: 'seq', args: ['1', '20000'], environment: {}, cwd: '/' },
      user: users.lookup('root'),
      tag: null,
      terminal: terminal ? { cols: 80, rows: 24 } : null,
      stdin: true,
      startId: null,
    },
    null,
  );
  const parts: Buffer[] = [];
  for (let events = await feed.next(); events !== null; events = await feed.next()) {
    for (const event of events) if (event.type === 'output') parts.push(event.bytes);
  }
  return Buffer.concat(parts);
}

test.each([
  ['pipes', false, '\n'],
  ['a terminal', true, '\r\n'],
])(`the output of ${RUNS} runs through %s is complete`, async (_name, terminal, end) => {
  const wanted = Buffer.from(LINES.map((line) => line + end).join(''));
  for (let run = 0; run < RUNS; run++) {
    const output = await count(terminal);
    expect(output.equals(wanted), `run ${run}: ${output.length} of ${wanted.length} bytes`).toBe(true);
  }
});
