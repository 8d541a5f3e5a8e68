import { createHash } from 'node:crypto';
import { rmSync } from 'node:fs';
import { expect, test } from 'vitest';
import { faultCases, sampled } from '../../support/attackers/fault-cases.ts';
import { openFiles } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { startCollector, type TestCollector } from '../../support/servers/log-collector.ts';
import { startMetadataService } from '../../support/servers/metadata-service.ts';
import { type RelayFault, startRelay } from '../../support/servers/relay.ts';
import { until } from '../../support/until.ts';

/*
 * A daemon reaches the services of its platform by a relay that spoils one piece of what it passes on. A wrong token never
 * counts, the right one counts in the end; no line of the log is lost; no descriptor is left.
 */

/** Pieces of each side: the metadata take two requests. */
const PIECES = { metadata: 4, log: 3 } as const;
const TIMEOUT = { timeout: 3_600_000 };
/** The directory in /run is this test's own. */
const PREFIX = `faults${process.pid}`;

/** Of requests that leave no connection behind. */
const CLOSE = { connection: 'close' };

const hashOf = (token: string) => createHash('sha512').update(token).digest('hex');
const sockets = ({ pid }: TestDaemon) => openFiles(pid).filter((name) => name.startsWith('socket:')).length;
const told = (fault: RelayFault) => JSON.stringify(fault);

test('faults of the connection to the metadata service', TIMEOUT, async () => {
  await using service = await startMetadataService();
  await using relay = await startRelay(Number(service.url.port));
  const args = [`--metadata-service=http://127.0.0.1:${relay.port}/`, `--name-prefix=${PREFIX}`];
  await using daemon = await startDaemon({ args });
  using _files = { [Symbol.dispose]: () => rmSync(`/run/${PREFIX}`, { recursive: true, force: true }) };
  const init = async (accessToken: string) => {
    const response = await fetch(`${daemon.url}/init`, {
      ...{ method: 'POST', headers: CLOSE },
      body: JSON.stringify({ accessToken }),
    });
    await response.arrayBuffer();
    return response.status;
  };
  service.metadata = { sandboxID: 'box', accessTokenHash: hashOf('first') };
  await until('the first token counts', async () => (await init('first')) === 204);
  const before = sockets(daemon);
  for (const [index, fault] of sampled(faultCases(PIECES.metadata), 'metadata').entries()) {
    const token = `token-${index}`;
    service.metadata = { sandboxID: `box-${index}`, accessTokenHash: hashOf(token) };
    using injected = relay.inject(fault);
    const [wrong, right] = await Promise.all([init('wrong'), init(token)]);
    expect([401, 503], told(fault)).toContain(wrong);
    // One that is refused has been compared with metadata that a fault has changed.
    expect(fault.kind === 'garble' ? [204, 401, 503] : [204, 503], told(fault)).toContain(right);
    injected[Symbol.dispose]();
    // What is silent now would be closed by the kernel in the end.
    relay.reset();
    await until('the right token counts', async () => (await init(token)) === 204);
    expect(await init('wrong'), told(fault)).toBe(401);
  }
  await until(
    'no socket is left',
    () => sockets(daemon),
    (count) => count <= before,
  );
  expect(await daemon.stop()).toBe(0);
});

test('faults of the connection to the log collector', TIMEOUT, async () => {
  await using collector = await startCollector();
  await using relay = await startRelay(Number(new URL(collector.url).port));
  await using daemon = await startDaemon({ args: [`--log-collector=http://127.0.0.1:${relay.port}/logs`] });
  const call = async (id: string) => {
    const response = await fetch(`${daemon.url}/envs`, { headers: { ...CLOSE, 'x-request-id': id } });
    await response.arrayBuffer();
  };
  await call('first');
  await arrived(collector, 'first');
  const before = sockets(daemon);
  const ids: string[] = [];
  for (const [index, fault] of sampled(faultCases(PIECES.log).filter(isTold), 'log').entries()) {
    using injected = relay.inject(fault);
    // As many requests as there are pieces, so that one of them meets it.
    for (let piece = 0; piece <= PIECES.log && !injected.hasFired; piece++) {
      const id = `call-${index}-${piece}`;
      ids.push(id);
      await call(id);
      await until(`${id}: ${told(fault)}`, () => injected.hasFired || idsIn(collector).includes(id));
    }
    if (fault.kind === 'stall') relay.reset();
  }
  await call('last');
  await arrived(collector, 'last');
  // Those whose answer was lost come twice.
  expect([...new Set(idsIn(collector))]).toEqual(['first', ...ids, 'last']);
  await until(
    'no socket is left',
    () => sockets(daemon),
    (count) => count <= before,
  );
  expect(await daemon.stop()).toBe(0);
});

const idsIn = ({ lines }: TestCollector) =>
  lines.flatMap(({ requestId }) => (typeof requestId === 'string' ? [requestId] : []));
const arrived = (collector: TestCollector, id: string) =>
  until(`the line of ${id} arrives`, () => idsIn(collector).includes(id));

/** A line, or an answer, that was changed on its way may be what it has become. */
const isTold = ({ kind }: RelayFault) => kind !== 'garble';
