import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { scratch } from '../../support/machine/scratch.ts';
import { startAgent } from '../../support/programs/agent.ts';
import { startGateway, type TestGateway, toSandbox } from '../../support/programs/gateway.ts';
import { owned } from '../../support/programs/owned.ts';
import { startRawSandbox } from '../../support/programs/raw-sandbox.ts';
import { until } from '../../support/until.ts';

/** Hooks that note what they do, and a create hook that answers what the test says when it may. */
function hooksOf(answer: string, directory = scratch()) {
  writeFileSync(join(directory, 'answer'), answer);
  const note = (what: string) => `echo "${what} $SANDBOX_ID" >>'${directory}/log'`;
  const wait = `while [ -d '${directory}' ] && [ ! -e '${directory}/go' ]; do sleep 0.02; done`;
  const create = `${note('begin')}; ${wait}; ${note('made')}; cat '${directory}/answer'`;
  return {
    args: [`--create-hook=${create}`, `--kill-hook=${note('kill')}`],
    go: () => writeFileSync(join(directory, 'go'), ''),
    log: () =>
      existsSync(join(directory, 'log'))
        ? readFileSync(join(directory, 'log'), 'utf8').trim().split('\n')
        : [],
    events: () => hooks.log().map((line) => line.split(' ', 1)[0]),
  };
}
let hooks: ReturnType<typeof hooksOf>;

const create = (gateway: TestGateway, headers?: Record<string, string>) =>
  gateway.call('POST /v2/sandboxes', { templateID: 'base', timeout: 600 }, headers);

test.each([
  ['nothing', ''],
  ['text', 'done'],
  ['a list', '[]'],
  ['no address', '{"port":1}'],
  ['an address that is not allowed', '{"address":"203.0.113.7"}'],
  ['a port that is none', '{"address":"127.0.0.1","port":70000}'],
  ['a token with a line end', '{"address":"127.0.0.1","envdAccessToken":"a\\r\\nb: c"}'],
  ['variables that are none', '{"address":"127.0.0.1","init":{"envVars":1}}'],
])('a hook that answers %s fails, and the kill hook removes what there is', async (_what, answer) => {
  hooks = hooksOf(answer);
  hooks.go();
  const gateway = await owned(startGateway({ args: hooks.args }));
  expect((await create(gateway)).status).toBe(502);
  await until('it is removed', () => hooks.events().includes('kill'));
  await until('the record is gone', async () =>
    (await gateway.call('GET /gateway/metrics')).text.includes('{phase="removing"} 0'),
  );
  expect(hooks.events()).toEqual(['begin', 'made', 'kill']);
});

test('a daemon that has another token fails the creation', async () => {
  const daemon = await owned(
    startRawSandbox((socket) =>
      socket.end('HTTP/1.1 401 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n'),
    ),
  );
  hooks = hooksOf(JSON.stringify({ address: '127.0.0.1', port: daemon.port }));
  hooks.go();
  const gateway = await owned(startGateway({ args: hooks.args }));
  expect((await create(gateway)).status).toBe(502);
  await until('it is removed', () => hooks.events().includes('kill'));
});

test('a machine where the gateway may not connect to is removed, and nothing there is asked', async () => {
  const daemon = await owned(startAgent());
  hooks = hooksOf(JSON.stringify({ address: '127.0.0.1', port: daemon.port }));
  hooks.go();
  const gateway = await owned(startGateway({ args: hooks.args, anywhere: false }));
  expect((await create(gateway)).status).toBe(502);
  await until('it is removed', () => hooks.events().includes('kill'));
  const { reason } = await until('it is told', () => gateway.log.find(({ step }) => step === 'create'));
  // It is not tried for as long as a machine may take to boot.
  expect([daemon.asked, reason]).toEqual([[], expect.not.stringContaining('not ready')]);
});

test('a sandbox that is deleted while its daemon gets its token is removed, and never runs', async () => {
  const answer = Promise.withResolvers<void>();
  const asked: string[] = [];
  const daemon = await owned(
    startRawSandbox((socket, head) => {
      asked.push(head.split(' ', 2).join(' '));
      void answer.promise.then(() => socket.end('HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n'));
    }),
  );
  hooks = hooksOf(JSON.stringify({ address: '127.0.0.1', port: daemon.port }));
  hooks.go();
  const gateway = await owned(startGateway({ args: hooks.args }));
  const created = create(gateway);
  await until('its daemon is asked', () => asked.length > 0);
  const id = hooks.log()[0]?.split(' ')[1] ?? '';
  const deleted = gateway.call(`DELETE /sandboxes/${id}`);
  const log = join(gateway.directory, 'registry.db-wal');
  await until('that is recorded', () => readFileSync(log, 'latin1').includes('"isDoomed":true'));
  answer.resolve();
  expect([(await created).status, (await deleted).status, asked]).toEqual([502, 204, ['POST /init']]);
  expect(hooks.events()).toEqual(['begin', 'made', 'kill']);
});

test('a sandbox is reached, shown, listed and paused by nobody before it is created', async () => {
  const daemon = await owned(startAgent());
  const directory = scratch();
  writeFileSync(join(directory, 'keys'), 'platform p\nclient ada a\n');
  hooks = hooksOf(JSON.stringify({ address: '127.0.0.1', port: daemon.port }), directory);
  const keys = `--key-file=${join(directory, 'keys')}`;
  const gateway = await owned(
    startGateway({ args: [...hooks.args, '--hook=true', '--resume-hook=true', keys] }),
  );
  const created = create(gateway, { 'x-api-key': 'a' });
  await until('the hook runs', () => hooks.events().includes('begin'));
  const id = hooks.log()[0]?.split(' ')[1] ?? '';
  const early = await fetch(gateway.url, { headers: toSandbox(id) });
  expect([early.status, await early.json()]).toEqual([
    502,
    expect.objectContaining({ message: `sandbox '${id}' is still being created` }),
  ]);
  expect((await gateway.call('GET /v2/sandboxes')).body).toEqual([]);
  const shown = await gateway.call(`GET /sandboxes/${id}`, undefined, { 'x-api-key': 'a' });
  expect(shown.status).toBe(404);
  for (const operation of ['pause', 'connect', 'resume', 'refreshes'])
    expect((await gateway.call(`POST /sandboxes/${id}/${operation}`)).status).toBe(404);
  expect((await gateway.call(`POST /sandboxes/${id}/timeout`, { timeout: 0 })).status).toBe(404);
  expect((await gateway.call('POST /sandboxes', { sandboxID: id, address: '127.0.0.1' })).status).toBe(409);
  hooks.go();
  expect((await created).body).toMatchObject({ sandboxID: id, phase: 'running', port: daemon.port });
  expect(daemon.asked).toEqual(['POST /init']);
});

test('a gateway that is killed while the hook runs: the next one waits for the hook, and removes the machine', async () => {
  const directory = scratch();
  hooks = hooksOf(JSON.stringify({ address: '127.0.0.1', port: 1 }));
  const first = await owned(startGateway({ directory, args: hooks.args }));
  const lost = create(first).catch(() => 'lost');
  await until('the hook runs', () => hooks.events().includes('begin'));
  await first.kill();
  expect(await lost).toBe('lost');
  const next = await owned(startGateway({ directory, args: hooks.args }));
  const isFollowed = async () =>
    (await next.call('GET /gateway/metrics')).text.includes('{phase="creating"} 1');
  await until('it has the record', isFollowed);
  expect(hooks.events()).toEqual(['begin']);
  hooks.go();
  await until('it is removed', () => hooks.events().includes('kill'));
  expect(hooks.events()).toEqual(['begin', 'made', 'kill']);
});

test('a sandbox whose client has gone is removed, as is one that is deleted meanwhile', async () => {
  const daemon = await owned(startAgent());
  hooks = hooksOf(JSON.stringify({ address: '127.0.0.1', port: daemon.port }));
  const gateway = await owned(startGateway({ args: hooks.args }));
  const leaving = new AbortController();
  const init = {
    method: 'POST',
    headers: { 'x-api-key': 'the-key-of-the-platform' },
    body: '{"templateID":"base"}',
  };
  const left = fetch(`${gateway.url}/v2/sandboxes`, { ...init, signal: leaving.signal }).catch(() => 'left');
  await until('the hook runs', () => hooks.events().length === 1);
  leaving.abort();
  expect(await left).toBe('left');
  const staying = create(gateway);
  await until('the other hook runs', () => hooks.events().length === 2);
  const log = join(gateway.directory, 'registry.db-wal');
  expect(readFileSync(log, 'latin1')).not.toContain('"isDoomed":true');
  const deleted = gateway.call(`DELETE /sandboxes/${hooks.log()[1]?.split(' ')[1]}`);
  await until('that is recorded', () => readFileSync(log, 'latin1').includes('"isDoomed":true'));
  hooks.go();
  expect([(await staying).status, (await deleted).status]).toEqual([502, 204]);
  await until('both are removed', () => hooks.events().filter((event) => event === 'kill').length === 2);
});

test('one client has half of the places, and the others find one', async () => {
  const file = join(scratch(), 'keys');
  writeFileSync(file, 'platform p\nclient ada a\nclient eve e\n');
  const daemon = await owned(startAgent());
  hooks = hooksOf(JSON.stringify({ address: '127.0.0.1', port: daemon.port }));
  const gateway = await owned(
    startGateway({ args: [...hooks.args, '--max-creates=4', `--key-file=${file}`] }),
  );
  const by = (key: string) => create(gateway, { 'x-api-key': key });
  const first = [by('a'), by('a')];
  await until('the hooks run', () => hooks.events().length === 2);
  // This one waits for its turn.
  first.push(by('a'));
  const other = by('e');
  await until('the other hook runs', () => hooks.events().length === 3);
  hooks.go();
  expect((await Promise.all([...first, other])).map(({ status }) => status)).toEqual([201, 201, 201, 201]);
});
