import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { connectTo, transcribe } from '../../support/clients/clients.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon } from '../../support/programs/daemon.ts';
import { endWithTests } from '../../support/programs/end-with-tests.ts';

const LIMIT = 700;

/** `npm start` in a shell with that limit, as a person does. */
const NPM_START = [
  'sh',
  '-c',
  `ulimit -S -n ${LIMIT}; npm --silent start -- "$@" & trap "kill $!" TERM; wait; wait`,
  'sh',
] as const;

test('`npm start` gives processes the limit of descriptors of the shell that called npm', async () => {
  await using daemon = await startDaemon({ command: NPM_START });
  const { process } = connectTo(daemon.url);
  const script = 'ulimit -S -n; ulimit -H -n; echo "$LD_PRELOAD$ENVD_HOST"';
  const { stdout } = await transcribe(process.start({ process: { cmd: 'sh', args: ['-c', script] } }));
  const [soft, hard, preloaded] = String(stdout).split('\n');
  expect([soft, preloaded]).toEqual([String(LIMIT), '']);
  expect(Number(hard)).toBeGreaterThan(LIMIT);
});

interface Started {
  /** Where the daemon listens. */
  readonly address: string;
  /** Why localhost listeners of the machine are not forwarded; undefined: they are. */
  readonly forwarding: string | undefined;
  /** What was said before the daemon began. */
  readonly said: string;
}

/** Starts a daemon as `npm start` does in a clone that is set up, and stops it. */
async function start(args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Started> {
  const places = ['--port=0', '--no-cgroups', '--metadata-service=off', `--runtime-directory=${scratch()}`];
  const path = `${fileURLToPath(new URL('../../../node_modules/.bin', import.meta.url))}:${process.env.PATH}`;
  const child = spawn('sh', ['.ci/start', ...args, ...places], {
    env: { PATH: path, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  endWithTests(child);
  const said = text(child.stderr);
  for await (const line of createInterface({ input: child.stdout })) {
    const { msg, address, port } = JSON.parse(line);
    if (msg !== 'ready') continue;
    const health = await fetch(`http://127.0.0.1:${port}/health?verbose`);
    // A daemon that wants a token says nothing about itself.
    const { abilities } = (await health.json()) as { abilities?: { forwarding: { reason?: string } } };
    child.kill();
    return { address, forwarding: abilities?.forwarding.reason, said: await said };
  }
  throw new Error(`the daemon ended: ${await said}`);
}

test('without flags, `npm start` serves and forwards nothing beyond this machine, and says so', async () => {
  expect(await start([])).toEqual({
    address: '127.0.0.1',
    forwarding: expect.stringContaining('the daemon listens at 127.0.0.1 alone'),
    said: expect.stringMatching(/^start: .*127\.0\.0\.1.*-- --host=0\.0\.0\.0 --require-token\n/),
  });
});

test.each([
  ['a flag', ['--host=0.0.0.0', '--require-token'], {}],
  ['a variable', [], { ENVD_HOST: '0.0.0.0', ENVD_REQUIRE_TOKEN: '1' }],
])('%s opens it', async (_, args, env) => {
  expect(await start(args, env)).toMatchObject({
    address: '0.0.0.0',
    said: expect.not.stringMatching(/^start: /m),
  });
});
