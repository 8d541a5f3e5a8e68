import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { runs } from '../support/machine/proc.ts';
import { scratch } from '../support/machine/scratch.ts';
import { type Agent, startAgent } from '../support/programs/agent.ts';
import { API_KEY, startGateway, type TestGateway, toSandbox } from '../support/programs/gateway.ts';
import { hookCalls, phase, record } from '../support/servers/hook.ts';
import { startRedis } from '../support/servers/redis-server.ts';
import { until } from '../support/until.ts';

interface Scene {
  readonly gateway: TestGateway;
  readonly agent: Agent;
  readonly directory: string;
  /** Where hooks write their requests. */
  readonly calls: string;
}

/** A gateway with hooks, and a sandbox `box`. `resume` is what the hook does besides writing its request. */
async function scene(resume = 'true', args: readonly string[] = []): Promise<Scene> {
  const directory = scratch();
  const calls = join(directory, 'calls');
  const hooks = [`--hook=${record(calls)}`, `--resume-hook=${record(calls)}; cd '${directory}'; ${resume}`];
  const [gateway, agent] = await Promise.all([startGateway({ args: [...hooks, ...args] }), startAgent()]);
  onTestFinished(async () => {
    for (const each of [gateway, agent]) await each[Symbol.asyncDispose]();
  });
  await gateway.register('box', agent.port, { timeout: 3600 });
  return { gateway, agent, directory, calls };
}

const pause = async (gateway: TestGateway, id = 'box') =>
  expect((await gateway.call(`POST /sandboxes/${id}/pause`)).status).toBe(204);

async function ask(gateway: TestGateway, path = '/', id = 'box', more: RequestInit = {}) {
  const response = await fetch(`${gateway.url}${path}`, { headers: toSandbox(id), ...more });
  const text = await response.text();
  return { status: response.status, text };
}

const eventsIn = (calls: string) => hookCalls(calls).map(({ event, outcome }) => `${event} ${outcome}`);
const WAITS_FOR = (file: string) => `while [ ! -e ${file} ]; do sleep 0.02; done`;

test('a request for a paused sandbox waits while the hook resumes it, and the guest is thawed', async () => {
  const { gateway, agent, calls } = await scene();
  await pause(gateway);
  agent.asked.length = 0;
  const answer = await ask(gateway, '/files?a', 'box', { method: 'POST', body: 'x'.repeat(100_000) });
  expect(answer).toEqual({ status: 200, text: 'ok' });
  expect(agent.asked).toEqual(['POST /unfreeze', 'POST /files?a']);
  expect(eventsIn(calls)).toEqual(['expire pause', 'resume resume']);
  const { body } = await gateway.call('GET /sandboxes/box');
  expect(body).toMatchObject({ state: 'running', lifecycle: { onTimeout: 'pause', autoResume: true } });
  // The time that was left, which is more than the default time to live.
  expect(Date.parse(body.endAt) - Date.now()).toBeGreaterThan(310_000);
  const { text } = await gateway.call('GET /gateway/metrics');
  expect(text).toContain('envd_gateway_resumes_total 1\n');
});

test('many requests have the hook run once, and all are answered', async () => {
  const { gateway, directory, calls } = await scene(WAITS_FOR('go'));
  await pause(gateway);
  const answers = Promise.all(Array.from({ length: 60 }, () => ask(gateway)));
  await phase(gateway, 'box', 'resuming');
  expect((await gateway.call('GET /sandboxes/box')).body.state).toBe('paused');
  writeFileSync(join(directory, 'go'), '');
  expect(new Set((await answers).map(({ status }) => status))).toEqual(new Set([200]));
  expect(eventsIn(calls)).toEqual(['expire pause', 'resume resume']);
});

test('a request that comes while the sandbox is being paused is answered, too', async () => {
  const directory = scratch();
  const hook = `touch '${directory}/begun'; cd '${directory}'; ${WAITS_FOR('go')}`;
  const { gateway, agent } = await scene('true', [`--hook=${hook}`]);
  const paused = gateway.call('POST /sandboxes/box/pause');
  await until('the hook runs', () => existsSync(join(directory, 'begun')));
  const answer = ask(gateway);
  writeFileSync(join(directory, 'go'), '');
  expect((await answer).status).toBe(200);
  expect((await paused).status).toBe(204);
  expect(agent.asked.at(-1)).toBe('GET /');
});

test('a hook that fails is 502, at once for those who come soon after; then it is tried again', async () => {
  const { gateway, calls } = await scene('[ -e fixed ]');
  await pause(gateway);
  const first = await ask(gateway);
  expect(first.status).toBe(502);
  expect(JSON.parse(first.text)).toEqual({
    ...{ sandboxID: 'box', code: 502 },
    message: expect.stringMatching(/^sandbox 'box' could not be resumed: try again in 1 s$/),
  });
  expect((await ask(gateway)).status).toBe(502);
  expect(eventsIn(calls)).toHaveLength(2);
  expect((await gateway.call('GET /sandboxes/box')).body).toMatchObject({ phase: 'paused', failures: 1 });
  const told = await until('it is told', () => gateway.log.find(({ step }) => step === 'resume'));
  expect(told).toMatchObject({ sandboxID: 'box', failures: 1 });
  // Time itself: the delay after a failure.
  await until('it is tried again', async () => {
    await ask(gateway);
    return eventsIn(calls).length === 3;
  });
  expect(new Set(hookCalls(calls).map(({ expiryID }) => expiryID)).size).toBe(3);
  expect(hookCalls(calls).map(({ attempt }) => attempt)).toEqual([1, 1, 2]);
});

test('a hook that hangs is 504 for those who wait, and is killed', async () => {
  const hook = 'echo $$ >pid; exec sleep 1000';
  const { gateway, directory } = await scene(hook, ['--resume-wait=1', '--hook-timeout=5']);
  await pause(gateway);
  const answer = await ask(gateway);
  expect(answer.status).toBe(504);
  expect(answer.text).toContain("sandbox 'box' is paused and was not resumed within 1 s");
  await phase(gateway, 'box', 'paused');
  const pid = Number(readFileSync(join(directory, 'pid'), 'utf8'));
  await until('the hook is dead', () => !runs(pid));
  const { text } = await gateway.call('GET /gateway/metrics');
  expect(text).toContain('envd_gateway_expiry_failures_total{step="resume"} 1\n');
  expect(text).toContain('envd_gateway_exchanges 0\n');
});

test('so many requests wait and no more, and one that is given up makes room', async () => {
  const { gateway, directory } = await scene(WAITS_FOR('go'), ['--max-waiting=4']);
  await pause(gateway);
  const abort = new AbortController();
  const given = ask(gateway, '/', 'box', { signal: abort.signal }).catch(() => 'aborted');
  const kept = ask(gateway);
  const refused = await until('a third one is refused', async () => {
    const answer = await ask(gateway, '/', 'box', { signal: AbortSignal.timeout(200) }).catch(() => null);
    return answer?.status === 503 ? answer : null;
  });
  expect(JSON.parse(refused?.text ?? '')).toMatchObject({
    sandboxID: 'box',
    code: 503,
    message: expect.stringContaining('too many requests wait for paused sandboxes (--max-waiting): '),
  });
  abort.abort();
  expect(await given).toBe('aborted');
  await until('another one waits in its place', async () => {
    const signal = AbortSignal.timeout(200);
    return (await ask(gateway, '/', 'box', { signal }).catch(() => 'waited')) === 'waited';
  });
  writeFileSync(join(directory, 'go'), '');
  expect((await kept).status).toBe(200);
});

test('so many sandboxes are resumed at a time and no more', async () => {
  const { gateway, agent, directory } = await scene(WAITS_FOR('go'), ['--max-resumes=1']);
  await gateway.register('two', agent.port, { timeout: 3600 });
  for (const id of ['box', 'two']) await pause(gateway, id);
  const first = ask(gateway);
  await phase(gateway, 'box', 'resuming');
  expect(await ask(gateway, '/', 'two')).toMatchObject({
    status: 503,
    text: expect.stringContaining('too many sandboxes are being resumed (--max-resumes): 1'),
  });
  expect((await gateway.call('GET /sandboxes/two')).body.phase).toBe('paused');
  writeFileSync(join(directory, 'go'), '');
  expect((await first).status).toBe(200);
  // The first one counts until the disk has its record.
  const other = async () => (await ask(gateway, '/', 'two')).status;
  expect(await until('there is a place', other, (status) => status !== 503)).toBe(200);
});

test('the hook may register the sandbox at another place', async () => {
  await using other = await startAgent('moved');
  const script = `curl -sS -o /dev/null -H 'X-API-Key: ${API_KEY}' --json '{"sandboxID":"box","address":"127.0.0.1","port":${other.port}}' "$(cat url)/sandboxes"`;
  const { gateway, agent, directory } = await scene(script);
  writeFileSync(join(directory, 'url'), gateway.url);
  await pause(gateway);
  agent.asked.length = 0;
  expect(await ask(gateway)).toEqual({ status: 200, text: 'moved' });
  expect(agent.asked).toEqual([]);
});

test('what is refused does not wake a sandbox', async () => {
  const { gateway, calls } = await scene('true', ['--allow-ports=3000', '--domain=sandboxes.test']);
  await using neighbour = await startAgent();
  await gateway.register('neighbour', neighbour.port);
  await pause(gateway);
  expect((await ask(gateway, '/init')).status).toBe(403);
  expect((await ask(gateway, '/a/../%66reeze')).status).toBe(403);
  for (const port of [80, neighbour.port]) {
    const response = await fetch(gateway.url, { headers: toSandbox('box', port) });
    expect(response.status).toBe(403);
  }
  expect((await ask(gateway, '/', 'nobody')).status).toBe(502);
  expect(eventsIn(calls)).toEqual(['expire pause']);
});

test('where keys are required, strangers wake nothing', async () => {
  const keys = join(scratch(), 'keys');
  writeFileSync(keys, 'platform p\nclient ada key-of-ada\nclient bob key-of-bob\n');
  const { gateway, agent, calls } = await scene('true', ['--require-key', `--key-file=${keys}`]);
  await gateway.register('hers', agent.port, { owner: 'ada', timeout: 3600 });
  await pause(gateway, 'hers');
  const by = async (key: string) =>
    (await ask(gateway, '/', 'hers', { headers: { ...toSandbox('hers'), 'x-api-key': key } })).status;
  expect([await by('wrong'), await by('key-of-bob')]).toEqual([401, 502]);
  expect(eventsIn(calls)).toEqual(['expire pause']);
  expect(await by('key-of-ada')).toBe(200);
});

test('a sandbox that does not want it, and one that is removed when it expires, are not resumed by requests', async () => {
  const { gateway, agent, calls } = await scene();
  await gateway.register('quiet', agent.port, { autoResume: false, timeout: 3600 });
  await pause(gateway, 'quiet');
  expect(await ask(gateway, '/', 'quiet')).toMatchObject({
    status: 502,
    text: expect.stringContaining('is paused'),
  });
  expect(eventsIn(calls)).toEqual(['expire pause']);
  // A client that asks for it has it resumed.
  const connected = await gateway.call('POST /v2/sandboxes/quiet/connect', { timeout: 900 });
  expect([connected.status, connected.body.state]).toEqual([201, 'running']);
  expect(Date.parse(connected.body.endAt) - Date.now()).toBeGreaterThan(890_000);
  expect((await ask(gateway, '/', 'quiet')).status).toBe(200);
  expect((await gateway.call('POST /sandboxes/quiet/connect')).status).toBe(200);
  expect((await gateway.call('POST /sandboxes/quiet/resume')).status).toBe(409);
  await pause(gateway, 'quiet');
  expect((await gateway.call('POST /sandboxes/quiet/resume', { timeout: 60 })).status).toBe(201);
  expect(eventsIn(calls).filter((each) => each === 'resume resume')).toHaveLength(2);
  await gateway.register('brief', agent.port, { onExpiry: 'remove', timeout: 0 });
  await phase(gateway, 'brief', 'gone');
  expect((await ask(gateway, '/', 'brief')).status).toBe(502);
});

test('a gateway that is killed while the hook runs: the next one goes on, and the hook has run once', async () => {
  const { gateway, agent, directory, calls } = await scene(WAITS_FOR('go'));
  await pause(gateway);
  const lost = ask(gateway).catch(() => 'lost');
  await phase(gateway, 'box', 'resuming');
  await until('the hook runs', () => eventsIn(calls).length === 2);
  await gateway.kill();
  expect(await lost).toBe('lost');
  const args = ['--hook=false', `--resume-hook=${record(calls)}`];
  await using next = await startGateway({ directory: gateway.directory, args });
  const answer = ask(next);
  writeFileSync(join(directory, 'go'), '');
  expect((await answer).status).toBe(200);
  expect(eventsIn(calls)).toEqual(['expire pause', 'resume resume']);
  expect(agent.asked.at(-1)).toBe('GET /');
});

test('two gateways have the hook run once', async () => {
  await using redis = await startRedis();
  await using agent = await startAgent();
  const directory = scratch();
  const calls = join(directory, 'calls');
  const args = [
    ...[`--redis=${redis.url}`, `--hook=${record(calls)}`],
    `--resume-hook=${record(calls)}; cd '${directory}'; ${WAITS_FOR('go')}`,
  ];
  await using one = await startGateway({ args });
  await using two = await startGateway({ args });
  await one.register('box', agent.port, { timeout: 3600 });
  await pause(one);
  const answers = [one, two, one, two].map((gateway) => ask(gateway));
  await phase(two, 'box', 'resuming');
  writeFileSync(join(directory, 'go'), '');
  expect((await Promise.all(answers)).map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  expect(eventsIn(calls)).toEqual(['expire pause', 'resume resume']);
});

test('a request that is marked so does not wake a paused sandbox', async () => {
  const { gateway, directory, calls } = await scene(WAITS_FOR('go'));
  const asks = (wake: string) =>
    ask(gateway, '/', 'box', { headers: { ...toSandbox('box'), 'svc-sandbox-wake': wake } });
  expect(await asks('never')).toEqual({ status: 200, text: 'ok' });
  await pause(gateway);
  const refused = await asks('never');
  expect(refused.status).toBe(502);
  expect(JSON.parse(refused.text).message).toBe("sandbox 'box' is paused");
  expect(eventsIn(calls)).toEqual(['expire pause']);
  const woken = ask(gateway);
  await phase(gateway, 'box', 'resuming');
  // It is not what wakes the sandbox, and asks again.
  expect((await asks('never')).text).toContain('is being resumed');
  writeFileSync(join(directory, 'go'), '');
  expect((await woken).status).toBe(200);
  expect((await asks('later')).status).toBe(400);
});

test('a marked request that comes while the sandbox is being paused does not wake it', async () => {
  const directory = scratch();
  const hook = `touch '${directory}/begun'; cd '${directory}'; ${WAITS_FOR('go')}`;
  const { gateway } = await scene('true', [`--hook=${hook}`]);
  const paused = gateway.call('POST /sandboxes/box/pause');
  await until('the hook runs', () => existsSync(join(directory, 'begun')));
  const headers = { ...toSandbox('box'), 'svc-sandbox-wake': 'never' };
  expect((await ask(gateway, '/', 'box', { headers })).text).toContain("sandbox 'box' is being paused");
  writeFileSync(join(directory, 'go'), '');
  expect((await paused).status).toBe(204);
  await phase(gateway, 'box', 'paused');
});
