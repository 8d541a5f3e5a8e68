import { join } from 'node:path';
import { createClient, type Interceptor } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-node';
import type { HealthReport } from '../../src/daemon/services/guest/health.ts';
import { Process } from '../../src/gen/process/process_pb.js';
import { transcribe } from '../support/clients/clients.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { API_KEY, startGateway, type TestGateway } from '../support/programs/gateway.ts';
import { hookCalls, phase, record } from '../support/servers/hook.ts';
import { type RestCall, restAt } from './rest.ts';
import { showRpc } from './rpc.ts';
import { heading, received, remark, say } from './screen.ts';
import { start } from './start.ts';

/** The context of the steps. */
interface Scene {
  readonly gateway: TestGateway;
  readonly daemons: Readonly<Record<'red' | 'blue', TestDaemon>>;
  readonly rest: RestCall;
  /** The directory where the hook writes its request. */
  readonly hookFile: string;
}

type Step = readonly [title: string, explanation: string, run: (scene: Scene) => Promise<void>];

const JSON_BODY = { 'content-type': 'application/json' };
const WITH_KEY = { 'x-api-key': API_KEY };
const body = (value: unknown) => ({ headers: { ...WITH_KEY, ...JSON_BODY }, body: JSON.stringify(value) });
const COLOURS = ['red', 'blue'] as const;

const STEPS: readonly Step[] = [
  ['Register', 'The platform says where two sandboxes are.', register],
  ['Switch', 'One client, one host: a header decides which sandbox a command runs in.', switchBetween],
  ['Refusals', 'What is not there, what is not open, what is not said.', meetRefusals],
  ['Time to live', 'Set, extended, never shortened by a refresh.', giveTime],
  ['Time is up', 'The guest stands still, is packed, and the hook is told: once.', seeItExpire],
  ['Back again', 'The platform has resumed it, and says so.', comeBack],
];

async function register({ rest, daemons }: Scene): Promise<void> {
  for (const sandboxID of COLOURS) {
    const { port } = daemons[sandboxID];
    await rest('POST /sandboxes', body({ sandboxID, address: '127.0.0.1', port, timeout: 600 }));
  }
}

/** The process service of one sandbox, named by a header only. */
function processesOf({ gateway }: Scene, sandboxID: string) {
  const address: Interceptor = (next) => (request) => {
    request.header.set('Svc-Sandbox-Id', sandboxID);
    return next(request);
  };
  const transport = createConnectTransport({
    baseUrl: gateway.url,
    httpVersion: '1.1',
    interceptors: [showRpc, address],
  });
  return createClient(Process, transport);
}

async function switchBetween(scene: Scene): Promise<void> {
  for (const sandboxID of ['red', 'blue', 'red'] as const) {
    remark(`Svc-Sandbox-Id: ${sandboxID}`);
    const script = 'echo "I am in $COLOUR"';
    await transcribe(processesOf(scene, sandboxID).start({ process: { cmd: 'sh', args: ['-c', script] } }));
  }
}

async function meetRefusals({ rest }: Scene): Promise<void> {
  await rest('GET /health', { headers: { 'svc-sandbox-id': 'green' } });
  await rest('POST /%69nit', { headers: { 'svc-sandbox-id': 'red' } });
  await rest('GET /health');
  await rest('GET /sandboxes');
}

async function giveTime({ rest }: Scene): Promise<void> {
  const look = async () =>
    JSON.parse(await rest('GET /sandboxes/red', { headers: WITH_KEY })).endAt as string;
  await rest('POST /sandboxes/red/timeout', body({ timeout: 60 }));
  const set = await look();
  await rest('POST /sandboxes/red/refreshes', body({ duration: 120 }));
  const extended = await look();
  await rest('POST /sandboxes/red/refreshes', body({ duration: 5 }));
  const kept = (await look()) === extended;
  const seconds = Math.round((Date.parse(extended) - Date.parse(set)) / 1000);
  remark(
    `The first refresh gave it ${seconds} s more; the second one changed ${kept ? 'nothing' : 'something'}.`,
  );
}

async function seeItExpire(scene: Scene): Promise<void> {
  const { rest, gateway, hookFile } = scene;
  const script = 'i=0; while :; do i=$((i+1)); echo $i; sleep 0.3; done';
  const counting = transcribe(
    processesOf(scene, 'red').start({ process: { cmd: 'sh', args: ['-c', script] } }),
  ).catch(() => remark('The stream was broken off: its sandbox is gone for clients.'));
  await rest('POST /sandboxes/red/timeout', body({ timeout: 1 }));
  // Before the end of the stream, which a sandbox that cannot be paused goes on with.
  await phase(gateway, 'red', 'paused');
  await counting;
  const [{ freeze, collapse, ...request } = { freeze: null, collapse: null }] = hookCalls(hookFile);
  received(`the hook: ${JSON.stringify(request)}`);
  received(`the hook: freeze ${JSON.stringify(freeze)}`);
  received(`the hook: collapse ${JSON.stringify(collapse)}`);
  await rest('GET /health', { headers: { 'svc-sandbox-id': 'red' } });
  await rest('POST /sandboxes/red/refreshes', body({ duration: 60 }));
  remark(`The hook was told ${hookCalls(hookFile).length} time.`);
}

async function comeBack({ rest, daemons }: Scene): Promise<void> {
  // As a platform would do after the resume: /init thaws the guest.
  await fetch(`${daemons.red.url}/init`, { method: 'POST' });
  const { port } = daemons.red;
  await rest('POST /sandboxes', body({ sandboxID: 'red', address: '127.0.0.1', port, timeout: 600 }));
  await rest('GET /health', { headers: { 'svc-sandbox-id': 'red' } });
}

async function startColoured(colour: string): Promise<TestDaemon> {
  // Flags of the tour are those of its daemons.
  const daemon = await startDaemon({ args: process.argv.slice(2) });
  const init = { method: 'POST', headers: JSON_BODY, body: JSON.stringify({ envVars: { COLOUR: colour } }) };
  await fetch(`${daemon.url}/init`, init);
  return daemon;
}

/** Why the workload of a daemon cannot be frozen: the gateway would try for as long as the tour runs. */
async function freezeObstacle({ url }: TestDaemon): Promise<string | undefined> {
  const { abilities } = (await (await fetch(`${url}/health?verbose`)).json()) as HealthReport;
  return 'reason' in abilities.freeze ? abilities.freeze.reason : undefined;
}

/** Runs the steps in order; returns the exit code of the gateway. */
async function tour(): Promise<number> {
  say(
    'One host for many sandboxes: the gateway routes by header, and ends those whose time is up. This tour starts',
  );
  say('it with two real daemons as its guests. → is what was sent, ← what came back.');
  await using red = await startColoured('red');
  await using blue = await startColoured('blue');
  const obstacle = await freezeObstacle(red);
  if (obstacle !== undefined) {
    process.stderr.write(`demo: its guests must stand still when their time is up: ${obstacle}\n`);
    return 1;
  }
  const hookFile = join(red.scratch, 'told');
  await using gateway = await startGateway({ args: [`--hook=${record(hookFile)}`] });
  say(`Gateway at ${gateway.url}; guests at ${red.url} (red) and ${blue.url} (blue).`);
  const scene = { gateway, daemons: { red, blue }, rest: restAt(gateway.url), hookFile };
  for (const [index, [title, explanation, run]] of STEPS.entries()) {
    heading(index + 1, title, explanation);
    await run(scene);
  }
  heading(STEPS.length + 1, 'Stop', 'SIGTERM; what it knows stays in one file.');
  await gateway.kill('SIGTERM');
  const { code } = await gateway.exited;
  remark(`The gateway has ended with exit code ${code}.`);
  return code ?? 1;
}

await start(tour, {
  needs: ['root', 'cgroup v2'],
  farewell: '`npm run gateway -- --help` shows how to run one.',
});
