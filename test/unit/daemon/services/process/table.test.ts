import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterEach, expect, test, vi } from 'vitest';
import { monotonicMs } from '../../../../../src/base/monotonic.ts';
import { Quota } from '../../../../../src/base/quota.ts';
import { UNKNOWN_EXIT } from '../../../../../src/daemon/linux/processes/spawn.ts';
import { UserDatabase } from '../../../../../src/daemon/linux/system/users.ts';
import { Guest } from '../../../../../src/daemon/services/guest/guest.ts';
import { WorkloadCgroups } from '../../../../../src/daemon/services/process/cgroups/cgroups.ts';
import { EndedProcess } from '../../../../../src/daemon/services/process/lifecycle/ended.ts';
import { keptOf } from '../../../../../src/daemon/services/process/lifecycle/process-config.ts';
import { NO_ENDS } from '../../../../../src/daemon/services/process/output/channels.ts';
import { ProcessTable } from '../../../../../src/daemon/services/process/table.ts';
import { RecordStore } from '../../../../../src/daemon/services/records/record-store.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { testLanes } from '../../../../support/services/lanes.ts';
import { until } from '../../../../support/until.ts';

afterEach(() => {
  vi.useRealTimers();
});

const users = new UserDatabase();

function newTable(records?: RecordStore): ProcessTable {
  const options = {
    path: '/usr/bin:/bin',
    historyBytes: 0,
    startTimeout: 10,
    maxProcesses: 1024,
    unread: new Quota(64 * 1024 * 1024),
    lanes: testLanes,
  };
  return new ProcessTable(new Guest(users), WorkloadCgroups.create(null), options, records);
}

const requestFor = (command: string) => ({
  config: { command, args: [], environment: {}, cwd: '/' },
  ...{ user: users.lookup('root'), tag: 'short', terminal: null, stdin: false, startId: null },
});

/** The process with this tag, once it has ended. */
async function endedOf(table: ProcessTable): Promise<EndedProcess> {
  const process = table.findRetained({ tag: 'short' });
  return process instanceof EndedProcess ? process : process.ended;
}

/** Of the service manager, which takes nothing for a while. */
class WaitingStore extends RecordStore {
  readonly #taken = Promise.withResolvers<void>();

  constructor() {
    super(null, {}, () => {});
  }

  override get taken(): Promise<void> {
    return this.#taken.promise;
  }

  take(): void {
    this.#taken.resolve();
  }
}

test('output that comes before the service manager has taken a record is not lost', async () => {
  const store = new WaitingStore();
  const table = newTable(store);
  const starting = table.start(requestFor('pwd'), null);
  await until('it has ended', () => table.counts.ended.exited === 1);
  store.take();
  using feed = await starting;
  const types: string[] = [];
  for (let events = await feed.next(); events; events = await feed.next())
    types.push(...events.map(({ type }) => type));
  expect(types).toEqual(['start', 'output', 'end']);
});

test('an ended process can be connected to for 30 s', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const table = newTable();
  const request = requestFor('true');
  using feed = await table.start(request, null);
  const process = await endedOf(table);
  expect(table.list()).toEqual([]);
  for (const selector of [{ pid: process.pid }, { tag: 'short' }]) {
    expect(table.findRetained(selector)).toBe(process);
    expect(() => table.find(selector)).toThrow('not found');
  }
  vi.advanceTimersByTime(29_999);
  const { pid, output } = table.findRetained({ tag: 'short' });
  using late = output.read(pid, null);
  expect((await late.next())?.map(({ type }) => type)).toEqual(['start', 'end']);
  // Those of a tenth of a second are forgotten together.
  vi.advanceTimersByTime(101);
  expect(() => table.findRetained({ pid: process.pid })).toThrow(`process with pid ${process.pid} not found`);
  expect((await feed.next())?.[0]?.type).toBe('start');
});

test('ended processes of an earlier program are forgotten each in its time, in whatever order they come', () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const table = newTable();
  const zero = { stdout: 0, stderr: 0, pty: 0 };
  const past = {
    unwritten: Buffer.alloc(0),
    isInputClosed: true,
    isKilled: false,
    isExpired: false,
    deadlineAt: null,
  };
  const usage = { userMicros: 0, systemMicros: 0, peakMemoryBytes: null };
  const end = {
    type: 'end',
    exitCode: 0,
    exited: true,
    status: 'exit status 0',
    error: null,
    usage,
  } as const;
  const endedProcess = (pid: number, ago: number) => ({
    ...past,
    ...({
      pid,
      config: keptOf(requestFor('true').config, false),
      tag: null,
      kind: 'pipes',
      ends: NO_ENDS,
      pidfd: null,
    } as const),
    ...{
      isChild: true,
      leaf: null,
      totals: zero,
      number: pid,
      startId: null,
      exit: UNKNOWN_EXIT,
      output: '',
    },
    ...{ end: { ...end, reason: 'exited', signal: null } as const, endedAt: monotonicMs() - ago },
  });
  const processes = [endedProcess(7, 0), endedProcess(8, 29_000)];
  const others = {
    outputs: new Map(),
    inFlight: null,
    drains: [],
    leaves: null,
    starting: [],
  };
  table.takeOver({ processes, ...others });
  vi.advanceTimersByTime(2000);
  expect(table.findRetained({ pid: 7 }).pid).toBe(7);
  expect(() => table.findRetained({ pid: 8 })).toThrow('process with pid 8 not found');
});

test('of a long command an ended process keeps a digest, by which a repeated start is known', async () => {
  const table = newTable();
  const config = { command: 'true', args: ['x'.repeat(100_000)], environment: { A: '1', B: '2' }, cwd: '/' };
  const start = (other: Partial<typeof config>) =>
    table.start({ ...requestFor('true'), startId: 'one', config: { ...config, ...other } }, null);
  using first = await start({});
  await endedOf(table);
  expect(JSON.stringify(table.findRetained({ tag: 'short' }).config).length).toBeLessThan(200);
  using again = await start({ environment: { B: '2', A: '1' } });
  for (const feed of [first, again])
    expect((await feed.next())?.map(({ type }) => type)).toEqual(['start', 'end']);
  await expect(start({ args: ['y'.repeat(100_000)] })).rejects.toThrow("start id 'one' belongs to process");
});

/** The children of this process. */
function children(): string[] {
  return readdirSync('/proc/self/task').flatMap((thread) =>
    readFileSync(`/proc/self/task/${thread}/children`, 'utf8').split(' ').filter(Boolean),
  );
}

/** Blocks the event loop from the moment that another child is there until it has ended, unless it `isReaped` by then. */
async function blockUntilItHasEnded(isReaped: () => boolean): Promise<void> {
  const before = new Set(children());
  const others = () => children().filter((pid) => !before.has(pid));
  while (others().length === 0 && !isReaped()) await nextTurn();
  while (!others().every((pid) => readFileSync(`/proc/${pid}/stat`, 'utf8').includes(') Z '))) {}
}

test('a process that has ended before its start is told of is one record, and nothing for the service manager', async () => {
  const store = new RecordStore(join(scratch(), 'nobody'), {}, () => {});
  const table = newTable(store);
  /** How often a record is kept, and in how many queues that the service manager has. */
  const kept = async (begin: () => Promise<unknown>) => {
    const [put, queues] = [vi.spyOn(store, 'put'), store.queues.length];
    await begin();
    return { puts: put.mock.calls.length, queues: store.queues.length - queues };
  };
  const run = async (wait = blockUntilItHasEnded) => {
    const ended = table.counts.ended.exited;
    const starting = table.start(requestFor('true'), null);
    await wait(() => table.counts.ended.exited > ended);
    (await starting)[Symbol.dispose]();
    await until('its end is told of', () => table.counts.ended.exited > ended);
  };
  // Also starts envd-start, which does not end.
  await run(async () => {});
  await run();
  expect(await kept(run)).toEqual({ puts: 1, queues: 0 });
  vi.restoreAllMocks();
  expect(await kept(() => table.start(requestFor('yes'), null))).toEqual({ puts: 1, queues: 1 });
  table.kill();
});
