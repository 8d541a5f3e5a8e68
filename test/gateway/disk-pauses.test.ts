import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Sandbox } from 'e2b';
import { expect, onTestFinished, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { type Agent, startAgent } from '../support/programs/agent.ts';
import { API_KEY, startGateway, type TestGateway, toSandbox } from '../support/programs/gateway.ts';
import { rejection } from '../support/programs/sandbox.ts';
import { hookCalls, phase, record } from '../support/servers/hook.ts';
import { until } from '../support/until.ts';

/* Pauses that keep the disk alone: the machine goes, and a resume makes a new one. */

interface Scene {
  readonly gateway: TestGateway;
  /** The machine that a creation makes, and the one that a resume makes. */
  readonly first: Agent;
  readonly second: Agent;
  readonly calls: string;
}

async function scene(keeps: string, resumed?: string, before = 'true'): Promise<Scene> {
  const [first, second] = [await startAgent(), await startAgent('a new machine')];
  const calls = join(scratch(), 'calls');
  const machine = ({ port }: Agent) => `{"address":"127.0.0.1","port":${port},"init":{"defaultUser":"ada"}}`;
  const hook = (answer: string) => `${record(calls)}; echo '${answer}'`;
  const gateway = await startGateway({
    args: [
      ...[
        `--create-hook=${hook(machine(first))}`,
        `--hook=${before}; ${hook('done')}`,
        `--kill-hook=${hook('gone')}`,
      ],
      ...[`--resume-hook=${hook(resumed ?? machine(second))}`, `--pause-keeps=${keeps}`],
      '--header-prefix=E2b',
    ],
  });
  onTestFinished(async () => {
    for (const each of [gateway, first, second]) await each[Symbol.asyncDispose]();
  });
  return { gateway, first, second, calls };
}

const optionsOf = ({ url }: TestGateway) => ({
  ...{ apiKey: API_KEY, apiUrl: url, sandboxUrl: url, validateApiKey: false },
});
const health = (gateway: TestGateway, id: string) =>
  fetch(`${gateway.url}/health`, { headers: { ...toSandbox(id), 'e2b-sandbox-id': id } });

test('a pause without memory freezes nothing, and a resume is answered by the new machine, with the same token', async () => {
  const { gateway, first, second, calls } = await scene('memory,disk');
  const { body } = await gateway.call('POST /v2/sandboxes', { templateID: 'base', autoPause: true });
  const id = String(body.sandboxID);
  expect(body.pauseKeeps).toEqual(['memory', 'disk']);
  first.asked.length = 0;
  expect((await gateway.call(`POST /sandboxes/${id}/pause`, { memory: false })).status).toBe(204);
  expect(first.asked).toEqual([]);
  const paused = (await gateway.call(`GET /sandboxes/${id}`)).body;
  expect(paused).toMatchObject({ state: 'paused', machinePaused: true, keptMemory: false });
  // Requests do not resume it, although the sandbox may be resumed by them otherwise.
  expect((await health(gateway, id)).status).toBe(502);
  const resumed = await gateway.call(`POST /sandboxes/${id}/connect`, { timeout: 60, memory: false });
  expect([resumed.status, resumed.body.envdAccessToken]).toEqual([201, body.envdAccessToken]);
  expect(second.asked).toEqual(['POST /init', 'POST /unfreeze']);
  expect(await (await health(gateway, id)).text()).toBe('a new machine');
  const told = hookCalls(calls).map((call) => [call.event, 'memory' in call ? call.memory : undefined]);
  expect(told).toEqual([
    ['create', undefined],
    ['expire', false],
    ['resume', false],
  ]);
  // The next pause keeps what it is asked to keep.
  expect((await gateway.call(`POST /sandboxes/${id}/pause`)).status).toBe(204);
  expect((await gateway.call(`GET /sandboxes/${id}`)).body).toMatchObject({ keptMemory: true });
  const reboot = await gateway.call(`POST /sandboxes/${id}/connect`, { timeout: 60, memory: false });
  expect([reboot.status, reboot.body.message]).toEqual([501, expect.stringContaining('with its memory')]);
});

test('a sandbox that was created for pauses without memory has them when its time is up', async () => {
  const { gateway, calls } = await scene('disk');
  const more = { templateID: 'base', autoPause: true, autoPauseMemory: false };
  const { body } = await gateway.call('POST /v2/sandboxes', { ...more, timeout: 0 });
  await phase(gateway, String(body.sandboxID), 'paused');
  expect(hookCalls(calls).at(-1)).toMatchObject({ event: 'expire', outcome: 'pause', memory: false });
});

test('a pause that comes while another one gives up the memory is refused, as one that comes later is', async () => {
  const begun = join(scratch(), 'begun');
  const wait = `until [ -e '${begun}' ]; do sleep 0.05; done`;
  const { gateway, calls } = await scene('memory,disk', undefined, wait);
  const more = { templateID: 'base', autoPause: true, autoPauseMemory: false };
  const id = String((await gateway.call('POST /v2/sandboxes', { ...more, timeout: 0 })).body.sandboxID);
  await phase(gateway, id, 'committed');
  const pause = (body?: object) => gateway.call(`POST /sandboxes/${id}/pause`, body);
  const refused = pause();
  const joined = pause({ memory: false });
  expect(await Promise.race([refused, joined])).toMatchObject({
    status: 409,
    body: { message: `sandbox '${id}' is already being paused without its memory` },
  });
  writeFileSync(begun, '');
  expect((await joined).status).toBe(204);
  expect((await pause()).status).toBe(409);
  expect(hookCalls(calls).at(-1)).toMatchObject({ event: 'expire', memory: false });
});

test('memory that a client has kept comes back, although the sandbox was created for pauses without it', async () => {
  const { gateway, second, calls } = await scene('memory,disk');
  const more = { templateID: 'base', autoPause: true, autoPauseMemory: false };
  const id = String((await gateway.call('POST /v2/sandboxes', more)).body.sandboxID);
  expect((await gateway.call(`POST /sandboxes/${id}/pause`, {})).status).toBe(204);
  expect((await gateway.call(`GET /sandboxes/${id}`)).body).toMatchObject({ keptMemory: true });
  expect((await gateway.call(`POST /sandboxes/${id}/resume`, {})).status).toBe(201);
  const told = hookCalls(calls).map((call) => [call.event, 'memory' in call ? call.memory : undefined]);
  expect(told.slice(1)).toEqual([
    ['expire', undefined],
    ['resume', undefined],
  ]);
  expect(second.asked).toEqual([]);
});

test.each([
  ['pause', 'POST', 'pause', {}, 501, 'ask for that with memory: false'],
  ['creation', '', '', { autoPause: true }, 501, 'ask for that with autoPauseMemory: false'],
  [
    'auto-resume',
    '',
    '',
    { autoPause: true, autoPauseMemory: false, autoResume: { enabled: true } },
    400,
    '',
  ],
])(
  'where only the disk is kept, a %s that counts on memory is refused',
  async (_what, method, path, body, code, text) => {
    const { gateway } = await scene('disk');
    const { body: made } = await gateway.call('POST /v2/sandboxes', { templateID: 'base' });
    const answer =
      method === ''
        ? await gateway.call('POST /v2/sandboxes', { templateID: 'base', ...body })
        : await gateway.call(`POST /sandboxes/${made.sandboxID}/${path}`, body);
    expect([answer.status, answer.body.message]).toEqual([code, expect.stringContaining(text)]);
    expect((await gateway.call(`GET /sandboxes/${made.sandboxID}`)).body.phase).toBe('running');
  },
);

test('a resume whose answer describes no machine leaves the sandbox paused', async () => {
  const { gateway, calls } = await scene('disk', 'what is this');
  const { body } = await gateway.call('POST /v2/sandboxes', { templateID: 'base' });
  const id = String(body.sandboxID);
  await gateway.call(`POST /sandboxes/${id}/pause`, { memory: false });
  expect((await gateway.call(`POST /sandboxes/${id}/resume`, {})).status).toBe(502);
  await phase(gateway, id, 'paused');
  const told = await until('it is told', () => gateway.log.find(({ step }) => step === 'resume'));
  expect(told.reason).toContain(
    "the answer of the hook cannot be used: it is not a JSON object: 'what is this'",
  );
  expect((await gateway.call(`DELETE /sandboxes/${id}`)).status).toBe(204);
  expect(hookCalls(calls).at(-1)?.event).toBe('kill');
});

test('the published client pauses without memory, and connects again', async () => {
  const { gateway, second } = await scene('disk');
  const lifecycle = { onTimeout: { action: 'pause', keepMemory: false } } as const;
  const sandbox = await Sandbox.create('base', { ...optionsOf(gateway), lifecycle });
  expect(String(await rejection(sandbox.pause()))).toContain('501');
  expect(await sandbox.pause({ keepMemory: false })).toBe(true);
  const again = await Sandbox.connect(sandbox.sandboxId, optionsOf(gateway));
  expect(again.sandboxId).toBe(sandbox.sandboxId);
  expect(second.asked).toContain('POST /init');
});

test('the drain of a host does not remove a sandbox of which the disk alone is kept, because nothing of it is there', async () => {
  const { gateway } = await scene('memory,disk');
  const create = async () =>
    String((await gateway.call('POST /v2/sandboxes', { templateID: 'base' })).body.sandboxID);
  const id = await create();
  expect((await gateway.call(`POST /sandboxes/${id}/pause`, { memory: false })).status).toBe(204);
  const drained = await gateway.call('PATCH /hosts/127.0.0.1', { drain: true, sandboxes: 'remove' });
  expect([drained.status, drained.body.begun]).toEqual([200, 0]);
  await gateway.call('PATCH /hosts/127.0.0.1', { drain: false });
  expect((await gateway.call(`POST /sandboxes/${id}/connect`, { timeout: 60, memory: false })).status).toBe(
    201,
  );
  expect(
    (await gateway.call('PATCH /hosts/127.0.0.1', { drain: true, sandboxes: 'remove' })).body.begun,
  ).toBe(1);
  await phase(gateway, id, 'gone');
});
