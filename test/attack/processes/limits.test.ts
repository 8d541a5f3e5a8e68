import { readdirSync } from 'node:fs';
import { Code, ConnectError } from '@connectrpc/connect';
import { expect, test } from 'vitest';
import { connectTo, transcribe } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { openFiles } from '../../support/machine/proc.ts';
import { startDaemon } from '../../support/programs/daemon.ts';
import { bash } from '../../support/programs/workload.ts';
import { until } from '../../support/until.ts';

/* Limits of commands that are too small for any program, and starts with limits in crowds. */

const STARTS = 1000;
const AT_ONCE = 20;

test('a thousand starts with limits leave nothing behind', { timeout: 300_000 }, async () => {
  needs('cgroup v2');
  await using daemon = await startDaemon();
  const { process } = connectTo(daemon.url, 'binary');
  const KINDS = [
    { process: { cmd: 'true' }, limits: { openFiles: 32, fileBytes: 1n, nice: 19 } },
    { process: { cmd: 'true' }, limits: { tasks: 5, memoryBytes: 2n ** 26n } },
    { process: { cmd: 'true' }, limits: { cpuWeight: 1, cpuPercent: 1_000_000 }, pty: {} },
    { process: { cmd: 'no-such-program' }, limits: { openFiles: 32 } },
    { process: { cmd: 'true' }, limits: { tasks: 0 } },
  ];
  const codes = new Map<Code | null, number>();
  const start = async (index: number) => {
    const running = transcribe(process.start(KINDS[index % KINDS.length] ?? {}));
    const code = await running.then(
      () => null,
      (error: unknown) => ConnectError.from(error).code,
    );
    codes.set(code, (codes.get(code) ?? 0) + 1);
  };
  await start(0);
  const before = openFiles(daemon.pid).length;
  let next = 1;
  const one = async () => {
    for (let index = next++; index < STARTS; index = next++) await start(index);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, one));
  const known = [null, Code.FailedPrecondition, Code.NotFound, Code.InvalidArgument];
  expect([...codes.keys()].filter((code) => !known.includes(code))).toEqual([]);
  expect([codes.get(Code.NotFound), codes.get(Code.InvalidArgument)]).toEqual([STARTS / 5, STARTS / 5]);
  const cgroups = () =>
    ['user', 'ptys'].flatMap((kind) =>
      readdirSync(`${daemon.cgroupRoot}/${kind}`, { withFileTypes: true }).filter((one) => one.isDirectory()),
    );
  await until('the cgroups are gone', () => cgroups().length === 0);
  // Connections of the client may be open.
  await until('the descriptors are closed', () => openFiles(daemon.pid).length <= before + AT_ONCE);
  expect((await process.list({})).processes).toEqual([]);
});

test.each([{ openFiles: 1 }, { fileBytes: 1n }, { openFiles: 3, fileBytes: 1n, nice: 19 }])(
  'a program that cannot run with %o ends, and harms no other',
  async (limits) => {
    await using daemon = await startDaemon();
    const { process } = connectTo(daemon.url);
    for (const pty of [undefined, {}]) {
      const more = pty && { pty };
      const script = bash(`echo much >'${daemon.scratch}/file'`);
      const outcome = await transcribe(process.start({ process: script, limits, ...more })).catch(
        (error: unknown) => ConnectError.from(error),
      );
      // The loader of programs has no descriptor left, or the script itself has none.
      if (outcome instanceof ConnectError) expect(outcome.code).toBe(Code.InvalidArgument);
      else expect(outcome.end).not.toBeNull();
    }
    const { stdout } = await transcribe(process.start({ process: bash('echo well; ulimit -n') }));
    expect(String(stdout)).toMatch(/^well\n\d+\n$/);
  },
);
