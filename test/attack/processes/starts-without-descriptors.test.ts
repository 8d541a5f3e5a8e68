import { execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { readdirSync, writeFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { byTag, connectTo, transcribe } from '../../support/clients/clients.ts';
import { childrenOf } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

/*
 * Starts and input while descriptors run out at any step: each start works or is refused, and leaves nothing behind.
 */

const descriptorsOf = (daemon: TestDaemon) => readdirSync(`/proc/${daemon.pid}/fd`).map(Number);

/** Log lines of uncaught errors. */
const unexpected = (daemon: TestDaemon) => daemon.log.filter(({ msg }) => msg.startsWith('unexpected error'));

/** The number that the next opened descriptor gets. */
function lowestFree(open: readonly number[]): number {
  let lowest = 0;
  while (open.includes(lowest)) lowest++;
  return lowest;
}

/** Limits new descriptors to numbers below this; open ones stay open. */
const setLimit = (daemon: TestDaemon, limit: number) =>
  execFileSync('prlimit', [`--pid=${daemon.pid}`, `--nofile=${limit}:`]);

/** A client with one connection, which is opened before descriptors run out. */
class Caller implements Disposable {
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 });
  readonly #port: number;

  constructor(port: number) {
    this.#port = port;
  }

  /** Calls a method of Process in JSON; returns all messages of a stream, or the single response. */
  async call(method: string, message: object, isStream: boolean): Promise<Record<string, unknown>[]> {
    const json = Buffer.from(JSON.stringify(message));
    const envelope = Buffer.alloc(5);
    envelope.writeUInt32BE(json.length, 1);
    const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
    const outgoing = request({
      agent: this.#agent,
      host: '127.0.0.1',
      port: this.#port,
      method: 'POST',
      path: `/process.Process/${method}`,
      headers: { 'content-type': isStream ? 'application/connect+json' : 'application/json' },
    });
    outgoing.on('error', reject).on('response', (response) => resolve(buffer(response)));
    outgoing.end(isStream ? Buffer.concat([envelope, json]) : json);
    const body = await promise;
    return isStream ? framesOf(body) : [JSON.parse(body.toString())];
  }

  [Symbol.dispose](): void {
    this.#agent.destroy();
  }
}

function framesOf(body: Buffer): Record<string, unknown>[] {
  if (body.length === 0) return [];
  const end = 5 + body.readUInt32BE(1);
  return [JSON.parse(body.toString('utf8', 5, end)), ...framesOf(body.subarray(end))];
}

test.each([
  ['a command', {}],
  ['a command of PATH', { process: { cmd: 'true' } }],
  ['a command without stdin', { stdin: false }],
  ['a terminal', { pty: {} }],
])('%s starts or is refused with any number of free descriptors', async (_name, kind) => {
  await using daemon = await startDaemon();
  using caller = new Caller(daemon.port);
  const start = () => caller.call('Start', { process: { cmd: '/bin/true' }, ...kind }, true);
  await start();
  const open = descriptorsOf(daemon);
  const seen = { started: 0, refused: 0 };
  // From none to plainly enough: how many a start needs depends on what else is open at that moment.
  for (let limit = lowestFree(open); seen.started < 10; limit++) {
    expect(limit, 'enough for any start').toBeLessThan(Math.max(...open) + 64);
    setLimit(daemon, limit);
    const messages = await start();
    setLimit(daemon, 1024);
    const { error } = messages.at(-1) as { error?: { code: string; message: string } };
    if (error) {
      seen.refused++;
      expect(messages).toHaveLength(1);
      expect(error.code, error.message).toBe('resource_exhausted');
      expect(error.message).toMatch(
        /^(cannot (start '\S*\/bin\/true': \w+: EMFILE: |open a terminal: )|too many open files to reach path: )/,
      );
    } else {
      seen.started++;
      expect(messages.at(-2)).toMatchObject({ event: { end: { status: 'exit status 0' } } });
    }
  }
  expect(seen.refused).toBeGreaterThan(3);
  await expect.poll(() => childrenOf(daemon.pid)).toEqual([]);
  await expect.poll(() => descriptorsOf(daemon).length).toBeLessThanOrEqual(open.length);
  const leaves = () =>
    ['user', 'ptys'].flatMap((name) =>
      readdirSync(`${daemon.cgroupRoot}/${name}`, { withFileTypes: true }).filter((each) =>
        each.isDirectory(),
      ),
    );
  if (daemon.cgroupRoot) await expect.poll(leaves).toEqual([]);
  expect(unexpected(daemon)).toEqual([]);
});

test('input to a full terminal waits for a free descriptor and arrives whole', async () => {
  await using daemon = await startDaemon();
  using caller = new Caller(daemon.port);
  const input = randomBytes(600_000);
  const go = `${daemon.scratch}/go`;
  const script = `stty raw -echo; echo ready; until [ -e ${go} ]; do sleep 0.02; done; head -c ${input.length} | sha256sum`;
  const ready = Promise.withResolvers<void>();
  const run = transcribe(
    connectTo(daemon.url).process.start({
      process: { cmd: '/bin/sh', args: ['-c', script] },
      pty: {},
      tag: 'late',
    }),
    (event) => event.case === 'data' && ready.resolve(),
  );
  await ready.promise;
  await caller.call('List', {}, false);
  setLimit(daemon, 3);
  const send = (bytes: Buffer) =>
    caller.call('SendInput', { process: { tag: 'late' }, input: { pty: bytes.toString('base64') } }, false);
  expect(await send(input.subarray(0, 300_000))).toEqual([{}]);
  expect(await send(input.subarray(300_000))).toEqual([{}]);
  setLimit(daemon, 1024);
  writeFileSync(go, '');
  expect(String((await run).pty)).toContain(createHash('sha256').update(input).digest('hex'));
  expect(unexpected(daemon)).toEqual([]);
});

test('without descriptors, SendInput to a pipe and a signal to the group work, and a signal to the tree is refused', async () => {
  await using daemon = await startDaemon();
  if (!daemon.cgroupRoot) return expect(daemon.cgroupRoot, 'no cgroup v2 on this machine').toBeNull();
  using caller = new Caller(daemon.port);
  const started = Promise.withResolvers<void>();
  const { process } = connectTo(daemon.url);
  const run = transcribe(process.start({ process: { cmd: 'sleep', args: ['300'] }, tag: 'tree' }), () =>
    started.resolve(),
  );
  await started.promise;
  await caller.call('List', {}, false);
  setLimit(daemon, 3);
  const signal = (scope: object) =>
    caller.call('SendSignal', { process: { tag: 'tree' }, signal: 9, ...scope }, false);
  const input = { process: { tag: 'tree' }, input: { stdin: 'eA==' } };
  expect(await caller.call('SendInput', input, false)).toEqual([{}]);
  expect(await signal({ scope: 'SIGNAL_SCOPE_TREE' })).toMatchObject([{ code: 'resource_exhausted' }]);
  expect(await signal({})).toEqual([{}]);
  expect((await run).end?.status).toBe('signal: killed');
  setLimit(daemon, 1024);
  await expect(process.sendSignal({ process: byTag('tree'), signal: 9 })).rejects.toThrow('not found');
});
