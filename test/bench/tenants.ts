/**
 * Many sandboxes of many owners on one gateway, and one owner who attacks: how late the sandboxes of all others are paused, and how long
 * requests to them take meanwhile. Guests of the attacker hang, and it sets their time to live again and again.
 * Arguments: sandboxes, owners, seconds in which all of them expire.
 */
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, get, type IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { API_KEY, startGateway, toSandbox } from '../support/programs/gateway.ts';
import { startMachines } from '../support/programs/machines.ts';
import { startRawSandbox } from '../support/programs/raw-sandbox.ts';
import { printTable, show } from './figures.ts';

const [sandboxes = 10_000, owners = 100, seconds = 300] = process.argv.slice(2).map(Number);
const HOSTS = 100;
const CONNECTIONS = 16;
const LOOK_UP_CONNECTIONS = 4;
const LATE_MS = 2000;
const FROZEN = JSON.stringify({ notFrozen: 0, failed: 0, unobservable: 0 });

await using healthy = await startRawSandbox((socket) =>
  socket.end(`HTTP/1.1 200 OK\r\ncontent-length: ${FROZEN.length}\r\n\r\n${FROZEN}`),
);
await using hanging = await startRawSandbox(() => {});
await using machines = await startMachines();
const directory = mkdtempSync(join(tmpdir(), 'envd-tenants-'));
writeFileSync(join(directory, 'keys'), `platform ${API_KEY}-2\nclient owner-0 key-of-eve\n`);
await using gateway = await startGateway({
  args: [`--hook=http://127.0.0.1:${machines.port}/`, `--key-file=${join(directory, 'keys')}`],
});
const agent = new Agent({ keepAlive: true });

/** Does `work` with each number below `count`, several at a time. */
async function each(count: number, work: (index: number) => Promise<unknown>): Promise<void> {
  let next = 0;
  const one = async () => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, one));
}

const isHostile = (index: number) => index % owners === 0;
const register = (index: number, timeout: number) =>
  gateway.register(`s${index}`, (isHostile(index) ? hanging : healthy).port, {
    ...{ owner: `owner-${index % owners}`, host: `h${index % HOSTS}`, timeout },
  });

process.stderr.write(`registering ${sandboxes} sandboxes of ${owners} owners\n`);
await each(sandboxes, (index) => register(index, 86_400));

const others = Array.from({ length: sandboxes }, (_, index) => index).filter((index) => !isHostile(index));
const hostile = Array.from({ length: sandboxes }, (_, index) => index).filter(isHostile);
let isOver = false;

/** Sets the time to live of all its sandboxes to 0, as fast as it can. */
async function attack(): Promise<number> {
  let calls = 0;
  const one = async (from: number) => {
    for (let index = from; !isOver; index = (index + 1) % hostile.length) {
      const headers = { 'x-api-key': 'key-of-eve' };
      await gateway
        .call(`POST /sandboxes/s${hostile[index]}/timeout`, { timeout: 0 }, headers)
        .catch(() => {});
      calls++;
    }
  };
  await Promise.all([0, 1, 2, 3].map(one));
  return calls;
}

/** Sends requests to the sandboxes of all others; resolves with the time of each, in ms. */
async function lookUp(): Promise<readonly number[]> {
  const times: number[] = [];
  const one = async () => {
    while (!isOver) {
      const sandbox = others[Math.floor(Math.random() * others.length)];
      const started = performance.now();
      const request = get({
        ...{ host: '127.0.0.1', port: gateway.port, path: '/health', agent },
        headers: toSandbox(`s${sandbox}`),
      });
      const [response] = (await once(request, 'response')) as [IncomingMessage];
      await once(response.resume(), 'end');
      times.push(performance.now() - started);
      // As many as a second has room for would measure the client.
      await delay(10);
    }
  };
  await Promise.all(Array.from({ length: LOOK_UP_CONNECTIONS }, one));
  return times;
}

/** When each sandbox had to expire, in Unix ms. */
const due = new Map<string, number>();
/** How late each hook was called, in ms. */
const lateness: number[] = [];
let seen = 0;
const measuring = setInterval(() => {
  for (; seen < machines.calls.length; seen++) {
    const at = due.get(machines.calls[seen]?.sandboxID ?? '');
    if (at !== undefined) lateness.push(Date.now() - at);
  }
}, 1);
const began = Date.now();
const [attacking, looking] = [attack(), lookUp()];
process.stderr.write(`all but those of the attacker expire within ${seconds} s\n`);
await each(others.length, async (turn) => {
  const [id, at] = [`s${others[turn]}`, began + (seconds * 1000 * turn) / others.length];
  // A whole second that is long enough ahead to be set in time.
  const timeout = Math.ceil((at - Date.now()) / 1000) + 1;
  await gateway.call(`POST /sandboxes/${id}/timeout`, { timeout: Math.max(1, timeout) });
  const { body } = await gateway.call(`GET /sandboxes/${id}`);
  due.set(id, Date.parse(body.endAt));
});
for (const end = Date.now() + (seconds + 60) * 1000; lateness.length < others.length && Date.now() < end; )
  await delay(100);
clearInterval(measuring);
isOver = true;
const [attacks, times] = [await attacking, await looking];
rmSync(directory, { recursive: true });

const quantile = (of: readonly number[], share: number) => {
  const sorted = of.toSorted((a, b) => a - b);
  return show(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN);
};
const row = (name: string, of: readonly number[]) => ({
  '': name,
  count: show(of.length),
  'median ms': quantile(of, 0.5),
  'p99 ms': quantile(of, 0.99),
  'most ms': quantile(of, 1),
});
const title = `${sandboxes} sandboxes of ${owners} owners expire within ${seconds} s, one owner attacks`;
printTable(title, [row('expiries of the others, late by', lateness), row('look-ups of routes', times)]);
const late = lateness.filter((ms) => ms > LATE_MS).length;
console.log(
  `${late} more than ${LATE_MS / 1000} s late, ${others.length - lateness.length} missing; the attacker called ${attacks} times`,
);
process.exitCode = late + others.length - lateness.length > 0 ? 1 : 0;
