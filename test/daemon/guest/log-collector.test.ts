import { rmSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { loopMount } from '../../support/machine/cgroups.ts';
import { needs } from '../../support/machine/needs.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import type { LogLine } from '../../support/programs/log-lines.ts';
import { freePort } from '../../support/servers/free-port.ts';
import { startCollector, type TestCollector } from '../../support/servers/log-collector.ts';
import { startMetadataService } from '../../support/servers/metadata-service.ts';
import { until } from '../../support/until.ts';

/** Longer than lines wait for others, in milliseconds. */
const LONG_MS = 2500;
/** The directory in /run is this test's own. */
const PREFIX = `test${process.pid}`;

async function setUp(address: string, args: readonly string[] = []) {
  const service = await startMetadataService();
  service.metadata = { instanceID: 'box-1', envID: 'plate', address };
  const daemon = await startDaemon({
    args: [`--metadata-service=${service.url}`, `--name-prefix=${PREFIX}`, ...args],
  });
  onTestFinished(async () => {
    await daemon[Symbol.asyncDispose]();
    await service[Symbol.asyncDispose]();
    rmSync(`/run/${PREFIX}`, { recursive: true, force: true });
  });
  return { service, daemon };
}

const post = (daemon: TestDaemon, path: string, body = '{}') =>
  fetch(daemon.url + path, { method: 'POST', headers: { 'content-type': 'application/json' }, body });

/** A call whose line of the log has this id. */
async function call(daemon: TestDaemon, id: string): Promise<void> {
  const response = await fetch(`${daemon.url}/envs`, { headers: { 'x-request-id': id } });
  expect(response.status).toBe(200);
  await response.arrayBuffer();
}

const idsIn = (lines: readonly LogLine[]) => lines.flatMap(({ requestId }) => (requestId ? [requestId] : []));
const arrived = (collector: TestCollector, id: string) =>
  until(`the line of ${id} arrives`, () => idsIn(collector.lines).includes(id));

async function scrape(daemon: TestDaemon): Promise<string> {
  return (await fetch(`${daemon.url}/metrics`, { headers: { accept: 'text/plain' } })).text();
}

test('each line arrives, with the ids of the sandbox and the template', async () => {
  await using collector = await startCollector();
  const { daemon } = await setUp(collector.url);
  for (const id of ['a', 'b', 'c']) await call(daemon, id);
  await arrived(collector, 'c');
  const own = () => daemon.log.filter(({ msg }) => msg !== undefined).slice(1);
  // Its standard output is another way, on which lines may come later.
  await until('the lines are printed', () => own().length > 2);
  expect(collector.lines).toEqual(
    expect.arrayContaining(
      own()
        .slice(0, 3)
        .map((line) => ({ instanceID: 'box-1', envID: 'plate', ...line })),
    ),
  );
  expect(collector.lines.map(({ msg }) => msg)).toContain('ready');
  expect(collector.contentTypes[0]).toBe('application/json');
  const { length } = collector.lines;
  const sent = async () => Number(/_lines_total\{result="sent"\} (\d+)/.exec(await scrape(daemon))?.[1]);
  // They are counted when their answers have come.
  const counted = await until('the lines are counted', sent, (count) => count >= length);
  expect(counted).toBeLessThanOrEqual(collector.lines.length);
});

test('--log-collector=auto is what the metadata name, and /init succeeds', async () => {
  await using collector = await startCollector();
  const { daemon } = await setUp(collector.url, ['--log-collector=auto']);
  expect((await post(daemon, '/init')).status).toBe(204);
  await call(daemon, 'a');
  await arrived(collector, 'a');
});

test('host:port is an address, too', async () => {
  await using collector = await startCollector();
  const { daemon } = await setUp(new URL(collector.url).host);
  await call(daemon, 'a');
  await arrived(collector, 'a');
});

test('a collector that comes later gets all lines, in order and once', async () => {
  const port = await freePort();
  const { daemon } = await setUp(`http://127.0.0.1:${port}`);
  const failures = () =>
    daemon.log.filter(({ msg }) => msg === 'cannot send the log to its collector: trying again');
  const ids = Array.from({ length: 300 }, (_, n) => `call-${n}`);
  for (const id of ids.slice(0, 200)) await call(daemon, id);
  await until('a try has failed', () => failures().length > 0);
  for (const id of ids.slice(200)) await call(daemon, id);
  await using collector = await startCollector(port);
  await arrived(collector, 'call-299');
  expect(idsIn(collector.lines)).toEqual(ids);
  expect(failures()).toHaveLength(1);
  expect(collector.lines.map(({ msg }) => msg)).not.toContain(
    'cannot send the log to its collector: trying again',
  );
});

type Intercept = TestCollector['intercepts'][number];

const fail: Record<string, Intercept> = {
  closes: (request) => void request.socket.destroy(),
  errs: (_, response) => void response.writeHead(500).end('x'.repeat(100_000)),
  halves: (request) => void request.socket.end('HTTP/1.1 200 OK\r\ncontent-length: 100'),
  switches: ({ socket }) => void socket.write('HTTP/1.1 101 x\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n'),
  babbles: (request) => void request.socket.write('not HTTP\r\n\r\n'),
  floods: (_, response) => {
    response.writeHead(503);
    const more = () => {
      while (!response.destroyed && response.write(Buffer.alloc(65_536, 'x')));
    };
    response.on('drain', more);
    more();
  },
  isSilent: () => {},
};

test.each([
  ['breaks off', [fail.closes, fail.errs, fail.halves, fail.switches, fail.babbles]],
  ['never ends its answer, or never answers', [fail.floods, fail.isSilent]],
])('a collector that %s stops no call; nothing is lost or sent twice', async (_, intercepts) => {
  await using collector = await startCollector();
  const ids: string[] = [];
  const atArrivals: number[] = [];
  for (const intercept of intercepts)
    collector.intercepts.push((request, response) => {
      atArrivals.push(ids.length);
      intercept?.(request, response);
    });
  const { daemon } = await setUp(collector.url);
  await until('it answers at last', async () => {
    const id = `call-${ids.length}`;
    ids.push(id);
    await call(daemon, id);
    await sleep(20);
    return collector.lines.length > 0;
  });
  expect(collector.arrivals).toBeGreaterThan(intercepts.length);
  // If calls waited for the collector, there would be one for each of its requests.
  expect(ids.length - (atArrivals[0] ?? 0)).toBeGreaterThan(intercepts.length);
  await arrived(collector, `call-${ids.length - 1}`);
  expect(idsIn(collector.lines)).toEqual(ids);
});

test('a batch that is refused is dropped and counted', async () => {
  await using collector = await startCollector();
  collector.status = 400;
  const { daemon } = await setUp(collector.url);
  await call(daemon, 'a');
  await until('it is refused', async () => /lines_total{result="refused"} [1-9]/.test(await scrape(daemon)));
  collector.status = 200;
  await call(daemon, 'b');
  await arrived(collector, 'b');
  expect(idsIn(collector.lines)).not.toContain('a');
});

test('nothing is sent while the workload is frozen, and the sandbox after the resume gets lines of its own', async () => {
  needs('cgroup v2');
  await using collector = await startCollector();
  const { daemon, service } = await setUp(collector.url);
  await call(daemon, 'before');
  await arrived(collector, 'before');
  await call(daemon, 'queued');
  expect((await post(daemon, '/freeze?maxWaitMs=5000')).status).toBe(200);
  const begun = collector.arrivals;
  await call(daemon, 'frozen');
  await sleep(LONG_MS);
  expect(collector.arrivals).toBe(begun);
  service.metadata = { instanceID: 'box-2', address: collector.url };
  expect((await post(daemon, '/init')).status).toBe(204);
  await call(daemon, 'after');
  await arrived(collector, 'after');
  const named = collector.lines.flatMap(({ requestId, instanceID }) =>
    requestId ? [`${requestId} ${instanceID}`] : [],
  );
  expect(named).toEqual(['before box-1', 'queued box-1', 'frozen box-2', 'after box-2']);
});

test('a freeze ends the request that is under way; its lines come after the thaw', async () => {
  const filesystem = loopMount();
  onTestFinished(() => filesystem[Symbol.dispose]());
  await using collector = await startCollector();
  const asked = Promise.withResolvers<void>();
  const closed = Promise.withResolvers<void>();
  collector.intercepts.push((request) => {
    request.on('close', closed.resolve).resume();
    asked.resolve();
  });
  const { daemon } = await setUp(collector.url, [`--fsfreeze-path=${filesystem.path}`]);
  await call(daemon, 'a');
  await asked.promise;
  expect((await post(daemon, '/fsfreeze')).status).toBe(204);
  await closed.promise;
  const begun = collector.arrivals;
  await call(daemon, 'b');
  await sleep(LONG_MS);
  expect(collector.arrivals).toBe(begun);
  expect((await post(daemon, '/fsthaw')).status).toBe(204);
  await arrived(collector, 'b');
  expect(idsIn(collector.lines)).toEqual(['a', 'b']);
  expect(daemon.log.map(({ msg }) => msg)).not.toContain(
    'cannot send the log to its collector: trying again',
  );
});

test('a stop sends the last lines, and a collector that does not answer does not hang it', async () => {
  await using collector = await startCollector();
  const { daemon } = await setUp(collector.url);
  const variables = async () => (await fetch(`${daemon.url}/envs`)).text();
  await until('the metadata are read', async () => (await variables()).includes('box-1'));
  await call(daemon, 'last');
  expect(await daemon.stop()).toBe(0);
  expect(idsIn(collector.lines)).toContain('last');
  expect(collector.lines.at(-1)?.msg).toBe('stopped');

  await using silent = await startCollector();
  const asked = Promise.withResolvers<void>();
  const hang = () => asked.resolve();
  silent.intercepts.push(hang, hang, hang, hang);
  const { daemon: second } = await setUp(silent.url);
  await call(second, 'last');
  await asked.promise;
  expect(await second.stop()).toBe(0);
});

test('with "off" nothing is sent or counted', async () => {
  await using collector = await startCollector();
  const { daemon } = await setUp(collector.url, ['--log-collector=off']);
  await call(daemon, 'a');
  expect(await scrape(daemon)).not.toContain('envd_collector');
  expect(await daemon.stop()).toBe(0);
  expect(collector.arrivals).toBe(0);
});

test('a fixed URL overrides the one that is named', async () => {
  await using collector = await startCollector();
  await using named = await startCollector();
  const { daemon } = await setUp(named.url, [`--log-collector=${collector.url}`]);
  await call(daemon, 'a');
  await arrived(collector, 'a');
  expect(collector.lines[0]).toMatchObject({ instanceID: 'box-1', envID: 'plate' });
  expect(named.arrivals).toBe(0);
});
