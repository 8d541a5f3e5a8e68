import { readFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Sandbox, type SandboxOpts } from 'e2b';
import type { Platform } from '../../examples/platform/platform.ts';
import { startTestPlatform } from '../support/programs/platform.ts';
import { heading, received, refused, remark, say, sent } from './screen.ts';
import { start } from './start.ts';

/** The context of the steps. */
interface Scene {
  readonly platform: Platform;
  /** How the published client reaches the platform. */
  readonly options: SandboxOpts;
  readonly sandboxes: Record<string, Sandbox>;
}

type Step = readonly [title: string, explanation: string, run: (scene: Scene) => Promise<void>];

const STEPS: readonly Step[] = [
  ['Create', 'Three sandboxes, by the published client.', createThree],
  ['Run', 'Programs and files, in one of them.', runCode],
  ['Apart', 'What a sandbox sees of the others and of this machine.', lookAround],
  ['Preview', 'A server in a private sandbox: a link opens it in a browser.', openPreview],
  [
    'Pause and resume',
    'Nothing runs while a sandbox is paused, and everything goes on after that.',
    pauseAndResume,
  ],
  ['Time is up', 'A sandbox is removed when its time is over.', letExpire],
];

const COLOURS = ['red', 'green', 'blue'] as const;
const DOMAIN = 'sandboxes.localhost';
const PORT = 3000;

async function createThree({ options, sandboxes }: Scene): Promise<void> {
  for (const colour of COLOURS) {
    const network = colour === 'green' ? { network: { allowPublicTraffic: false } } : {};
    const wanted = { envs: { COLOUR: colour }, timeoutMs: 300_000, ...network };
    sent('Sandbox.create', JSON.stringify(wanted));
    const sandbox = await Sandbox.create({ ...options, ...wanted });
    sandboxes[colour] = sandbox;
    received(`sandboxId "${sandbox.sandboxId}"`);
  }
}

/** The sandbox of a colour. */
function the(colour: (typeof COLOURS)[number], { sandboxes }: Scene): Sandbox {
  const sandbox = sandboxes[colour];
  if (!sandbox) throw new Error(`there is no sandbox '${colour}'`);
  return sandbox;
}

/** Runs a command, whatever its exit code, and shows it. */
async function run(sandbox: Sandbox, command: string): Promise<string> {
  sent('commands.run', command);
  const { stdout } = await sandbox.commands.run(`{ ${command}; } 2>&1 || true`);
  received(stdout.trimEnd());
  return stdout.trim();
}

async function runCode(scene: Scene): Promise<void> {
  const red = the('red', scene);
  await run(red, `python3 -c 'import os; print("I am", os.environ["COLOUR"], sum(range(101)))'`);
  sent('files.write', 'poem.txt "roses"');
  await red.files.write('poem.txt', 'roses');
  await run(red, 'cat poem.txt; echo; pwd; id -un');
}

async function lookAround(scene: Scene): Promise<void> {
  const [red, blue] = [the('red', scene), the('blue', scene)];
  const address = await run(blue, 'hostname -I');
  await run(red, `curl --silent --show-error --max-time 2 http://${address}:49983/health`);
  await run(red, 'curl --silent --show-error --max-time 2 http://10.213.0.1:49980/');
  await run(red, 'ls /home/user; ps -e -o comm=');
  await run(red, 'sudo id -u; sudo mount -t tmpfs none /mnt');
  remark('Containers share the kernel of this machine: against its faults only a virtual machine protects.');
}

async function openPreview(scene: Scene): Promise<void> {
  const green = the('green', scene);
  await green.files.write('site/index.html', '<h1>green</h1>\n');
  sent('commands.run', `python3 -m http.server ${PORT} --directory site, in the background`);
  await green.commands.run(`exec python3 -m http.server ${PORT} --directory site`, { background: true });
  const host = `${PORT}-${green.sandboxId}.${DOMAIN}`;
  await open(scene, host, '/');
  const { url, key } = scene.platform;
  sent('POST', `/sandboxes/${green.sandboxId}/previews {"port":${PORT},"expiresIn":600}`);
  const made = await fetch(`${url}/sandboxes/${green.sandboxId}/previews`, {
    method: 'POST',
    headers: { 'x-api-key': key, 'content-type': 'application/json' },
    body: JSON.stringify({ port: PORT, expiresIn: 600 }),
  });
  const link = new URL(((await made.json()) as { url: string }).url);
  received(
    `a link for a browser of this machine, on port ${new URL(url).port}:\n${link.protocol}//${link.host}${link.pathname}…`,
  );
  const cookie = await open(scene, host, `${link.pathname}${link.search}`);
  await open(scene, host, '/', cookie);
}

/** Asks for a page as a browser does, again until a server listens; returns the cookie that it sets. */
async function open(
  { platform }: Scene,
  host: string,
  path: string,
  cookie?: string,
): Promise<string | undefined> {
  sent(
    'GET',
    `http://${host}${path.split('?')[0]}${path.includes('?') ? '?…' : ''}${cookie ? ' with the cookie' : ''}`,
  );
  const headers = { host, ...(cookie && { cookie }) };
  for (;;) {
    const { promise, resolve, reject } = Promise.withResolvers<{
      status: number;
      text: string;
      cookie?: string | undefined;
    }>();
    request({ host: '127.0.0.1', port: new URL(platform.url).port, path, headers }, async (response) => {
      const text = (await response.toArray()).join('').trim();
      resolve({
        status: response.statusCode ?? 0,
        text,
        cookie: response.headers['set-cookie']?.[0]?.split(';')[0],
      });
    })
      .on('error', reject)
      .end();
    const { status, text, cookie: given } = await promise;
    if (status === 502) {
      await delay(50);
      continue;
    }
    (status >= 400 ? refused : received)(`${status} ${text.slice(0, 160)}`);
    return given;
  }
}

async function pauseAndResume(scene: Scene): Promise<void> {
  const red = the('red', scene);
  const counting = 'i=0; while :; do i=$((i+1)); echo $i >>/tmp/count; sleep 0.05; done';
  sent('commands.run', `${counting}, in the background`);
  await red.commands.run(counting, { background: true });
  await run(red, 'until [ -s /tmp/count ]; do sleep 0.05; done; tail -n 1 /tmp/count');
  sent('Sandbox.pause', red.sandboxId);
  await Sandbox.pause(red.sandboxId, scene.options);
  received(`state "${(await red.getInfo()).state}"`);
  // Only this machine can look into a sandbox while it is paused.
  const file = join(scene.platform.directory, 'sandboxes', red.sandboxId, 'upper/tmp/count');
  const before = readFileSync(file, 'utf8');
  await delay(1500);
  const isSame = readFileSync(file, 'utf8') === before;
  remark(
    `The file of the program ${isSame ? 'is the same: it has not run while the sandbox was paused' : 'has changed: it has run meanwhile'}.`,
  );
  sent('Sandbox.connect', red.sandboxId);
  const resumed = await Sandbox.connect(red.sandboxId, scene.options);
  await run(resumed, 'tail -n 1 /tmp/count');
}

async function letExpire(scene: Scene): Promise<void> {
  const blue = the('blue', scene);
  sent('setTimeout', '1000 ms');
  await blue.setTimeout(1000);
  // A request that is under way when the sandbox is removed is cut off.
  const isRunning = () => blue.isRunning().catch(() => true);
  while (await isRunning()) await delay(50);
  received('isRunning false');
  const list = async () => (await Sandbox.list(scene.options).nextItems()).length;
  // The record goes when the hook has removed the container.
  while ((await list()) === COLOURS.length) await delay(50);
  received(`${await list()} sandboxes are left`);
}

async function tour(): Promise<number> {
  say(
    'A platform on one machine: the gateway, with hooks that make containers here. → is what was sent, ← what came back.',
  );
  await using platform = await startTestPlatform(say);
  const { url, key: apiKey } = platform;
  say(`It listens at ${url}.`);
  const scene: Scene = { platform, options: { apiKey, apiUrl: url, sandboxUrl: url }, sandboxes: {} };
  for (const [index, [title, explanation, step]] of STEPS.entries()) {
    heading(index + 1, title, explanation);
    await step(scene);
  }
  heading(STEPS.length + 1, 'Stop', 'The sandboxes end with the platform.');
  await platform[Symbol.asyncDispose]();
  remark('Everything has ended.');
  return 0;
}

await start(tour, {
  needs: ['root', 'containers'],
  farewell: '`npm run platform` starts such a platform for your own programs.',
});
