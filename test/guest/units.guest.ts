import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { buffer } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { describe, expect, type TestOptions, test } from 'vitest';
import { transcribe } from '../support/clients/clients.ts';
import { booted, whenBooted } from '../support/guest/booted.ts';
import { guestProcessor } from '../support/guest/processor.ts';
import { resumed } from '../support/guest/resumed.ts';

/** The host runs them for its own processor and kernel: ENVD_GUEST_UNITS=1 runs them for the guest's, or the files it names. */
const wanted = process.env.ENVD_GUEST_UNITS;
const onDemand: TestOptions = wanted
  ? whenBooted
  : { skip: true, meta: { notRun: 'ENVD_GUEST_UNITS is not set' } };

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const PLACE = '/srv/envd';
/** They take minutes where the machine is not busy. */
const LIMIT_MS = 1_800_000;
const TESTED = wanted === '1' ? 'test/unit/daemon/os test/unit/native' : wanted;
/** Large packages that these tests do not need; Node itself is in the image. */
const LEFT_OUT = [
  'node-linux-*',
  '@biomejs',
  '@typescript',
  '@bufbuild/buf*',
  '@redocly',
  '@babel',
  '@jazzer.js',
];

/** The sources, and what was built for the guest, as an archive. */
async function archive(): Promise<Uint8Array<ArrayBuffer>> {
  const { debian } = guestProcessor();
  const built = debian === 'amd64' ? ROOT : `${ROOT}/node_modules/.cache/${debian}`;
  const without = [...LEFT_OUT.map((name) => `node_modules/${name}`), 'node_modules/.cache', 'obj.target'];
  const tar = spawn(
    'tar',
    [
      ...['-cf', '-', ...without.map((name) => `--exclude=${name}`)],
      ...['-C', ROOT, 'package.json', '.ci', 'src', 'test', 'native/src', 'native/index.d.ts'],
      ...['-C', built, 'native/build', 'node_modules'],
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const [bytes, [code]] = await Promise.all([buffer(tar.stdout), once(tar, 'close')]);
  if (code !== 0) throw new Error(`'tar' exited with ${code}`);
  return new Uint8Array(bytes);
}

describe('the unit tests of the system calls', onDemand, () => {
  test('pass with the processor and kernel of the guest', { timeout: LIMIT_MS }, async () => {
    await using guest = await resumed(booted);
    const headers = { 'content-type': 'application/x-tar', 'x-access-token': String(guest.token) };
    const unpacked = await fetch(`${guest.url}/files?path=${PLACE}`, {
      ...{ method: 'POST', headers, body: await archive() },
    });
    expect(unpacked.status).toBe(200);
    // One process for all of them: to load the modules takes an emulated guest longer than the tests.
    const limits = '--no-isolate --maxWorkers=1 --testTimeout=300000 --reporter=verbose';
    const run = `node_modules/vitest/vitest.mjs run --config test/vitest.config.ts ${limits}`;
    const command = `cd ${PLACE} && /opt/envd/lib/envd ${run} ${TESTED} 2>&1`;
    const request = { process: { cmd: '/bin/sh', args: ['-c', command] }, stdin: false };
    const { stdout, end } = await transcribe(guest.process.start(request));
    process.stderr.write(`test:guest: units: ${stdout.toString()}\n`);
    expect(end?.exitCode).toBe(0);
  });
});
