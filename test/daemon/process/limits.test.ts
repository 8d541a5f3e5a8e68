import { readdirSync, rmdirSync, statSync } from 'node:fs';
import { Code, ConnectError } from '@connectrpc/connect';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ProcessEvent_EndEvent } from '../../../src/gen/process/process_pb.js';
import { type Clients, connectTo, transcribe } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { bash } from '../../support/programs/workload.ts';
import { until } from '../../support/until.ts';

/* Limits of one command, by Start and by POST /exec. */

let daemon: TestDaemon;
let clients: Clients;
beforeAll(async () => {
  daemon = await startDaemon();
  clients = connectTo(daemon.url, 'binary');
});
afterAll(() => daemon[Symbol.asyncDispose]());

type Limits = NonNullable<Parameters<Clients['process']['start']>[0]['limits']>;

interface Answer {
  readonly message: string;
  readonly stdout: string;
}

async function exec(script: string, limits: unknown) {
  const body = JSON.stringify({ cmd: 'bash', args: ['-c', script], cwd: '/', limits });
  const response = await fetch(`${daemon.url}/exec`, { method: 'POST', body });
  return { status: response.status, body: (await response.json()) as Answer };
}

/** Runs a script with limits. Returns its output and its end. */
async function run(script: string, limits: Limits, more = {}) {
  let end: ProcessEvent_EndEvent | null = null;
  const { stdout, pty } = await transcribe(
    clients.process.start({ process: bash(script), limits, ...more }),
    (event) => {
      if (event.case === 'end') end = event.value;
    },
  );
  return { text: `${stdout}${pty}`.trim(), end: end as ProcessEvent_EndEvent | null };
}

const errorOf = (running: Promise<unknown>) =>
  running.then(
    () => null,
    (error: unknown) => ConnectError.from(error),
  );

/** A JSON request of Start, which may have any members. Returns the error of the stream, or null. */
async function startJson(limits: unknown): Promise<{ code: string; message: string } | null> {
  const body = Buffer.from(JSON.stringify({ process: { cmd: 'true', cwd: '/' }, limits }));
  const frame = Buffer.alloc(5 + body.length);
  frame.writeUInt32BE(body.length, 1);
  body.copy(frame, 5);
  const headers = { 'content-type': 'application/connect+json', 'connect-protocol-version': '1' };
  const response = await fetch(`${daemon.url}/process.Process/Start`, {
    method: 'POST',
    headers,
    body: frame,
  });
  const text = await response.text();
  const last = /\{"error":(\{.*\})\}$/.exec(text)?.[1];
  return last === undefined ? null : JSON.parse(last);
}

describe('limits that every guest can keep', () => {
  const SHOW = 'echo $(ulimit -Sn) $(ulimit -Hn) $(ulimit -Sf) $(ulimit -Hf) $(nice)';

  test('are those of the process, and of all below it', async () => {
    const limits = { openFiles: 64, fileBytes: 2n ** 33n + 1024n, nice: 7 };
    const kept = `64 64 ${2 ** 23 + 1} ${2 ** 23 + 1} 7`;
    expect((await run(SHOW, limits)).text).toBe(kept);
    expect((await run(`bash -c '${SHOW}'`, limits)).text).toBe(kept);
    expect((await run(SHOW, limits, { pty: {} })).text).toBe(kept);
    expect((await exec(SHOW, { openFiles: 64, fileBytes: 2 ** 33 + 1024, nice: 7 })).body.stdout.trim()).toBe(
      kept,
    );
  });

  test('are those of the daemon where none is asked for', async () => {
    const usual = (await run(SHOW, {})).text;
    expect((await exec(SHOW, undefined)).body.stdout.trim()).toBe(usual);
    expect(usual).toMatch(/ 0$/);
  });

  test('lower the hard limit, and never raise it', async () => {
    const hard = (await run('ulimit -Hn', {})).text;
    expect((await run('ulimit -Hn; ulimit -Sn', { openFiles: 0x7fffffff })).text).toBe(`${hard}\n${hard}`);
  });

  test('end a command that writes a longer file by SIGXFSZ, which its end names', async () => {
    const path = `${daemon.scratch}/long`;
    const { end } = await run(`exec head -c 100000 /dev/zero >'${path}'`, { fileBytes: 4096n });
    expect(end).toMatchObject({ exited: false, signal: 'SIGXFSZ' });
    expect(statSync(path).size).toBe(4096);
  });
});

/** The cgroups of single processes. */
const leaves = () =>
  ['user', 'ptys'].flatMap((kind) =>
    readdirSync(`${daemon.cgroupRoot}/${kind}`, { withFileTypes: true }).filter((one) => one.isDirectory()),
  );

describe('limits that need a controller of cgroup v2', () => {
  const FILES = {
    memoryBytes: [64n * 1024n * 1024n, 'memory.max', String(64 * 1024 * 1024)],
    cpuWeight: [20, 'cpu.weight', '20'],
    cpuPercent: [50, 'cpu.max', '50000 100000'],
    tasks: [9, 'pids.max', '9'],
  } as const;

  test.each(Object.entries(FILES))(
    '%s is kept or refused, and never ignored',
    async (name, [value, file, kept]) => {
      needs('cgroup v2');
      const script = `cat /sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/${file}`;
      const outcome = await run(script, { [name]: value }).catch((error: unknown) =>
        ConnectError.from(error),
      );
      if (!(outcome instanceof ConnectError)) return expect(outcome.text).toBe(kept);
      expect(outcome.code).toBe(Code.FailedPrecondition);
      const reason = `cgroup v2 has no controller ${file.split('.')[0]} here`;
      expect(outcome.rawMessage).toBe(`cannot start a process with limits.${name}: ${reason}`);
      const { status, body } = await exec('true', { [name]: Number(value) });
      expect([status, body.message]).toEqual([412, outcome.rawMessage]);
    },
  );

  test('are refused for a process outside of the cgroups', async () => {
    for (const [name, [value]] of Object.entries(FILES)) {
      const error = await errorOf(run('true', { [name]: value }, { tag: '_system' }));
      expect([error?.code, error?.rawMessage]).toEqual([
        Code.FailedPrecondition,
        `cannot start a process with limits.${name}: it has no cgroup of its own`,
      ]);
    }
    expect((await run('ulimit -n; nice', { openFiles: 64, nice: 3 }, { tag: '_system' })).text).toBe('64\n3');
  });

  test('leave no cgroup when they are refused', async () => {
    needs('cgroup v2');
    for (const more of [{}, { pty: {} }]) {
      await errorOf(run('true', { tasks: 1 }, more));
      const missing = { process: { cmd: '/no-such-program' }, ...more };
      expect((await errorOf(run('', { openFiles: 9 }, missing)))?.code).toBe(Code.NotFound);
    }
    await until('the cgroups are gone', () => leaves().length === 0);
  });
});

describe('the cgroup of a process with limits', () => {
  const LIMITS = { openFiles: 64 };

  test('is made again above it, where a process of the guest has removed that', async () => {
    needs('cgroup v2');
    await until('no process is left', () => leaves().length === 0);
    for (const [kind, more] of [
      ['user', {}],
      ['ptys', { pty: {} }],
    ] as const) {
      rmdirSync(`${daemon.cgroupRoot}/${kind}`);
      expect((await run('ulimit -n', LIMITS, more)).text).toBe('64');
    }
  });

  test('is not left where the workload is frozen, and the start is refused', async () => {
    needs('cgroup v2');
    const post = (path: string) => fetch(`${daemon.url}${path}`, { method: 'POST' });
    expect((await post('/freeze')).status).toBe(204);
    try {
      const error = await errorOf(run('true', LIMITS));
      expect([error?.code, error?.rawMessage]).toEqual([
        Code.Unavailable,
        'cannot start a process: the workload is frozen',
      ]);
      await until('the cgroup is gone', () => leaves().length === 0);
    } finally {
      expect((await post('/unfreeze')).status).toBe(204);
    }
    expect((await run('ulimit -n', LIMITS)).text).toBe('64');
  });
});

describe('a value that no system keeps', () => {
  const NAMES = ['memoryBytes', 'cpuWeight', 'cpuPercent', 'tasks', 'openFiles', 'fileBytes', 'nice'];
  /** What no limit can be. 2 to the power of 63 is a number in JSON as JavaScript writes it. */
  const BAD: readonly unknown[] = [-1, 2 ** 63, 0.5, 'NaN', 'a lot', true, {}, []];

  test.each(NAMES)('of %s is refused, with its name', async (name) => {
    for (const value of name === 'nice' ? [...BAD, 20] : [...BAD, 0]) {
      const { status, body } = await exec('true', { [name]: value });
      expect([value, status]).toEqual([value, 400]);
      expect(body.message).toMatch(new RegExp(`^limits.${name} must be a whole number from `));
      const error = await startJson({ [name]: value });
      expect([value, error?.code]).toEqual([value, 'invalid_argument']);
      const field = name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
      expect(error?.message).toMatch(new RegExp(`limits.${name}|process.Limits.${field}`));
    }
  });

  test('is refused in the binary codec, too', async () => {
    for (const limits of [
      { memoryBytes: 2n ** 63n },
      { fileBytes: 2n ** 64n - 1n },
      { nice: -20 },
      { tasks: 0 },
    ]) {
      const error = await errorOf(run('true', limits));
      expect(error?.code).toBe(Code.InvalidArgument);
      expect(error?.rawMessage).toMatch(
        new RegExp(`^limits.${Object.keys(limits)[0]} must be a whole number`),
      );
    }
  });

  test('has another name: POST /exec refuses it, and Start ignores it as any unknown member', async () => {
    const { status, body } = await exec('true', { memory: 5 });
    expect(status).toBe(400);
    expect(body.message).toMatch(/^unknown member 'limits.memory': use memoryBytes, /);
    for (const limits of ['512M', 5, true, []]) expect((await exec('true', limits)).status).toBe(400);
    expect(await startJson({ memory: 5 })).toBeNull();
    for (const limits of ['512M', 5, true, []])
      expect((await startJson(limits))?.code).toBe('invalid_argument');
  });

  test('no limit at all is no error', async () => {
    for (const limits of [{}, null, { memoryBytes: null }]) {
      expect((await exec('true', limits)).status).toBe(200);
      expect(await startJson(limits)).toBeNull();
    }
  });
});

test('a daemon without cgroups keeps what the system keeps', async () => {
  await using alone = await startDaemon({ args: ['--no-cgroups'] });
  const { process } = connectTo(alone.url);
  const { stdout } = await transcribe(
    process.start({ process: bash('ulimit -n; nice'), limits: { openFiles: 64, nice: 3 } }),
  );
  expect(String(stdout)).toBe('64\n3\n');
  const error = await errorOf(transcribe(process.start({ process: bash('true'), limits: { tasks: 5 } })));
  expect([error?.code, error?.rawMessage]).toEqual([
    Code.FailedPrecondition,
    'cannot start a process with limits.tasks: it has no cgroup of its own',
  ]);
});
