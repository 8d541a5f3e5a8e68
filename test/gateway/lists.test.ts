import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Sandbox } from 'e2b';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { API_KEY, startGateway, type TestGateway } from '../support/programs/gateway.ts';

let gateway: TestGateway;
let directory: string;
const IDS = Array.from({ length: 25 }, (_, index) => `s${String(index).padStart(2, '0')}`);

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'envd-lists-'));
  const keys = join(directory, 'keys');
  writeFileSync(keys, 'platform p\nclient ada the-key-of-ada\n');
  gateway = await startGateway({ args: [`--key-file=${keys}`] });
  for (const [index, id] of IDS.entries())
    await gateway.register(id, 4000, {
      owner: index % 5 === 0 ? 'ada' : 'bob',
      metadata: { part: `${index % 2}` },
    });
});

afterAll(async () => {
  await gateway[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true });
});

async function walk(
  path: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<readonly string[][]> {
  const pages: string[][] = [];
  for (let token: string | null = ''; token !== null; ) {
    const next: string = token === '' ? '' : `&nextToken=${token}`;
    const answer = await gateway.call(`GET ${path}${next}`, undefined, headers);
    expect(answer.status).toBe(200);
    pages.push(answer.body.map(({ sandboxID }: { readonly sandboxID: string }) => sandboxID));
    token = answer.headers.get('x-next-token');
  }
  return pages;
}

test('a list has pages, the newest first or the oldest', async () => {
  const pages = await walk('/v2/sandboxes?limit=10');
  expect(pages.map(({ length }) => length)).toEqual([10, 10, 5]);
  expect(pages.flat()).toEqual(IDS.toReversed());
  expect((await walk('/v2/sandboxes?limit=10&order=asc')).flat()).toEqual(IDS);
  expect((await walk('/sandboxes?limit=25')).flat()).toEqual(IDS);
  expect(await walk('/sandboxes?limit=25')).toHaveLength(1);
});

test('pages are full, whatever is not listed between', async () => {
  const pages = await walk('/v2/sandboxes?limit=6&metadata=part%3D1&order=asc');
  expect(pages.map(({ length }) => length)).toEqual([6, 6]);
  expect(pages.flat()).toEqual(IDS.filter((_, index) => index % 2 === 1));
  const own = await walk('/v2/sandboxes?limit=2&order=asc', { 'x-api-key': 'the-key-of-ada' });
  expect(own).toEqual([['s00', 's05'], ['s10', 's15'], ['s20']]);
});

test('sandboxes that start while pages are read are not missed, and none is listed twice', async () => {
  const first = await gateway.call('GET /sandboxes?limit=20');
  await gateway.register('s99', 4000);
  const token = first.headers.get('x-next-token');
  const { body } = await gateway.call(`GET /sandboxes?limit=20&nextToken=${token}`);
  expect(body.map(({ sandboxID }: { readonly sandboxID: string }) => sandboxID)).toEqual([
    ...IDS.slice(20),
    's99',
  ]);
  await gateway.call('DELETE /sandboxes/s99');
});

test('startedAfter includes the time itself, in both orders', async () => {
  const { body } = await gateway.call('GET /sandboxes/s20');
  const since = encodeURIComponent(body.startedAt);
  for (const order of ['asc', 'desc']) {
    const ids = (await walk(`/v2/sandboxes?startedAfter=${since}&order=${order}`)).flat();
    expect(ids.toSorted().slice(-5)).toEqual(IDS.slice(20));
    expect(ids).not.toContain('s00');
  }
});

test.each([
  ['limit=0', /limit must be a whole number from 1 to 1000, not '0'/],
  ['limit=1001', /limit must be/],
  ['limit=1e1', /limit must be/],
  ['limit=1&limit=2', /limit must be string/],
  ['order=up', /order must be 'asc' or 'desc', not 'up'/],
  ['state=running,dead', /state must be one of running, paused, not 'dead'/],
  ['startedAfter=yesterday', /startedAfter must be a time as in RFC 3339/],
  ['nextToken=x', /nextToken must be the X-Next-Token/],
  ['nextToken=W10', /nextToken must be the X-Next-Token/],
  ['nextToken=WzEsMl0', /nextToken must be the X-Next-Token/],
])('%s is refused in words', async (query, message) => {
  const { body } = await gateway.call(`GET /v2/sandboxes?${query}`);
  expect(body).toEqual({ code: 400, message: expect.stringMatching(message) });
});

test('states are separated by commas, or repeated, as the Python client does', async () => {
  expect((await gateway.call('GET /v2/sandboxes?state=running&state=paused')).body).toHaveLength(25);
  expect((await gateway.call('GET /v2/sandboxes?state=running,paused')).body).toHaveLength(25);
  expect((await gateway.call('GET /v2/sandboxes?state=paused')).body).toEqual([]);
});

test('the published client reads all pages', async () => {
  const options = { apiKey: API_KEY, apiUrl: gateway.url };
  const pages = Sandbox.list({ ...options, limit: 10, order: 'asc' });
  const ids: string[] = [];
  while (pages.hasNext) ids.push(...(await pages.nextItems()).map(({ sandboxId }) => sandboxId));
  expect(ids).toEqual(IDS);
});
