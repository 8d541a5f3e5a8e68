import { describe, expect, test } from 'vitest';
import { byPid, byTag, connectTo, transcribe } from '../../support/clients/clients.ts';
import { outputOf, resultOf, startKept } from '../../support/clients/lasting-output.ts';
import { exitIsTold } from '../../support/machine/machine.ts';
import { needs } from '../../support/machine/needs.ts';
import { openFiles } from '../../support/machine/proc.ts';
import { publicScratch } from '../../support/machine/scratch.ts';
import { startSupervised } from '../../support/programs/supervised.ts';
import { bash, input } from '../../support/programs/workload.ts';
import { until } from '../../support/until.ts';

/* Output that lasts, over kills and restarts of the daemon and over upgrades. */

const KIB = 1024;
const MIB = 1024 * KIB;

async function startKeeping() {
  const directory = publicScratch();
  const supervised = await startSupervised({ args: [`--output-directory=${directory}`] });
  return {
    supervised,
    url: supervised.daemon.url,
    files: () => openFiles(supervised.main()).filter((file) => file.startsWith(directory)).length,
    [Symbol.asyncDispose]: () => supervised[Symbol.asyncDispose](),
  };
}

const complete = (url: string, name: string | number) =>
  until(
    'everything is written',
    () => resultOf(url, name),
    (result) => result.complete,
  );

const written = (url: string, name: string | number, bytes: number) =>
  until(
    `${bytes} bytes are kept`,
    () => resultOf(url, name),
    ({ streams }) => streams.stdout?.bytes === bytes,
  );

const say = (url: string, process: ReturnType<typeof byPid | typeof byTag>, line: string) =>
  connectTo(url).process.sendInput({ process, input: input('stdin', `${line}\n`) });

describe.each([
  { ends: ['SIGKILL', 'SIGKILL'] },
  { ends: ['SIGQUIT', 'SIGKILL'] },
  { ends: ['upgrade', 'SIGKILL', 'upgrade'] },
] as const)('after $ends', ({ ends }) => {
  test('what was kept is there, and what comes is kept, too', async () => {
    await using keeping = await startKeeping();
    const { supervised, url } = keeping;
    const ended = await startKept(url, 'seq 3; echo err >&2; exit 4', { bytes: 5n });
    await complete(url, ended);
    const script = 'while read line; do echo "<$line>"; echo "$line" >&2; done; exit 6';
    const running = await startKept(url, script, { bytes: 12n, seconds: 500n }, { tag: 'goes-on' });
    let count = 0;
    for (const how of [...ends, null]) {
      count += 1;
      await say(url, byTag('goes-on'), `line-${count}`);
      await written(url, running, 9 * count);
      if (how === 'upgrade') await supervised.upgrade();
      else if (how !== null) await supervised.crash(how);
      expect(keeping.files()).toBe(2);
      expect(await resultOf(url, ended)).toMatchObject({
        ...{ complete: true, error: null, end: { exitCode: 4 } },
        streams: { stdout: { droppedBytes: 1, bytes: 6 }, stderr: { droppedBytes: 0, bytes: 4 } },
      });
      expect(await (await outputOf(url, ended)).text()).toBe('\n2\n3\n');
      expect(await (await outputOf(url, ended, '?stream=stderr')).text()).toBe('err\n');
    }
    await connectTo(url).process.closeStdin({ process: byPid(running) });
    const { end, error, streams, keptForSeconds } = await complete(url, 'goes-on');
    // Kernels before Linux 6.15 do not tell it of a process that is no child.
    if (exitIsTold() || ends.every((how: string) => how === 'upgrade')) expect(end?.exitCode).toBe(6);
    expect([error, streams.stdout]).toEqual([null, { droppedBytes: 9 * count - 12, bytes: 9 * count }]);
    const all = Array.from({ length: count }, (_, line) => `<line-${line + 1}>\n`).join('');
    expect(await (await outputOf(url, running)).text()).toBe(all.slice(-12));
    expect(keptForSeconds).toBeLessThanOrEqual(500);
  });
});

test('a process that ends while the daemon is away has its last output and its end', async () => {
  await using keeping = await startKeeping();
  const { supervised, url } = keeping;
  const script = `echo one; while [ -e /proc/${supervised.main()} ]; do :; done; echo two; exit 7`;
  const pid = await startKept(url, script);
  await written(url, pid, 4);
  await supervised.crash();
  const { end, error } = await complete(url, pid);
  expect([end?.reason, end?.exitCode, error]).toEqual(
    exitIsTold() ? ['exited', 7, null] : ['unknown', -1, null],
  );
  expect(await (await outputOf(url, pid, '?follow=true')).text()).toBe('one\ntwo\n');
});

test('of a process at full speed nothing is missing after a kill, and each byte is at its offset', async () => {
  await using keeping = await startKeeping();
  const { supervised, url } = keeping;
  // Each line has 16 bytes, with the number of its 64 KiB. So all bytes tell their offsets.
  const script = `exec python3 -c 'import sys
for n in range(10**9): sys.stdout.write(("%015d\\n" % n) * 4096)'`;
  const pid = await startKept(url, script, { bytes: BigInt(8 * MIB) });
  for (let kill = 1; kill <= 3; kill++) {
    await until(
      'more is kept',
      () => resultOf(url, pid),
      ({ streams }) => (streams.stdout?.bytes ?? 0) > kill * 16 * MIB,
    );
    await supervised.crash();
    const { streams } = await resultOf(url, pid);
    const { droppedBytes = 0, bytes = 0 } = streams.stdout ?? {};
    // What is about to be written takes the place of the first bytes.
    expect(bytes - droppedBytes).toBeGreaterThan(7 * MIB);
  }
  await connectTo(url).process.sendSignal({ process: byPid(pid), signal: 9 });
  const { error, streams } = await complete(url, pid);
  const { droppedBytes = 0, bytes = 0 } = streams.stdout ?? {};
  expect(error).toBeNull();
  const text = await (await outputOf(url, pid)).text();
  expect(text.length).toBe(bytes - droppedBytes);
  const skipped = -droppedBytes & 15;
  const wrong = text
    .slice(skipped)
    .match(/.{1,15}\n/g)
    ?.findIndex(
      (line, index) => Number(line) !== Math.floor((droppedBytes + skipped + 16 * index) / (64 * KIB)),
    );
  expect(wrong).toBe(-1);
});

test('more outputs than there are queues of records are there after two kills', async () => {
  await using keeping = await startKeeping();
  const { supervised, url } = keeping;
  const clients = connectTo(url, 'binary');
  const most = 300;
  const pids: number[] = [];
  while (pids.length < most) {
    const script = (index: number) => `echo ${index}`;
    const some = Array.from({ length: 20 }, (_, index) => startKept(clients, script(pids.length + index)));
    pids.push(...(await Promise.all(some)));
  }
  for (const pid of pids) await complete(url, pid);
  for (let kill = 0; kill < 2; kill++) {
    await supervised.crash();
    expect(keeping.files()).toBe(most);
    for (const [index, pid] of pids.entries()) {
      expect(await (await outputOf(url, pid)).text()).toBe(`${index}\n`);
      expect((await resultOf(url, pid)).end?.exitCode).toBe(0);
    }
  }
});

test('a frozen workload changes nothing: what is kept can be read, and the rest comes later', async () => {
  needs('cgroup v2');
  await using keeping = await startKeeping();
  const { url } = keeping;
  const pid = await startKept(url, 'echo one; read line; echo "$line"; exit 5', { seconds: 500n });
  await written(url, pid, 4);
  const post = async (path: string) => (await fetch(url + path, { method: 'POST' })).status;
  expect(await post('/freeze?maxWaitMs=10000')).toBe(200);
  await say(url, byPid(pid), 'two');
  const reading = outputOf(url, pid, '?follow=true');
  const { end, streams, keptForSeconds } = await resultOf(url, pid);
  expect([end, streams.stdout?.bytes, keptForSeconds]).toEqual([null, 4, null]);
  expect(await (await outputOf(url, pid)).text()).toBe('one\n');
  expect(await post('/unfreeze')).toBe(204);
  expect(await (await reading).text()).toBe('one\ntwo\n');
  expect((await complete(url, pid)).end?.exitCode).toBe(5);
});

test('after its seconds it is gone, with its file, and a later kill brings nothing back', async () => {
  await using keeping = await startKeeping();
  const { supervised, url } = keeping;
  const pid = await startKept(url, 'echo out', { seconds: 1n });
  await supervised.crash();
  await until('it is gone', async () => (await outputOf(url, pid)).status === 404);
  await until('the file is closed', () => keeping.files() === 0);
  await supervised.crash();
  expect((await outputOf(url, pid)).status).toBe(404);
  expect(keeping.files()).toBe(0);
  const { stdout } = await transcribe(connectTo(url).process.start({ process: bash('echo well') }));
  expect(String(stdout)).toBe('well\n');
});
