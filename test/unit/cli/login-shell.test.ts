import { execFileSync } from 'node:child_process';
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { Connection } from '../../../src/cli/connection/connection.ts';
import { loginShell } from '../../../src/cli/process/login-shell.ts';
import { scratch } from '../../support/machine/scratch.ts';

/** A guest that has these programs besides those of this machine. */
function guestWith(programs: Readonly<Record<string, string>>): {
  readonly bin: string;
  readonly connection: Connection;
} {
  const bin = scratch();
  for (const [name, script] of Object.entries(programs)) {
    writeFileSync(join(bin, name), `#!/bin/sh\n${script.replaceAll('BIN', bin)}\n`);
    chmodSync(join(bin, name), 0o755);
  }
  const start = async function* ({ process }: { process: { cmd: string; args: string[] } }) {
    const env = { PATH: `${bin}:${globalThis.process.env.PATH}` };
    const value = execFileSync(process.cmd, process.args, { env, stdio: ['ignore', 'pipe', 'ignore'] });
    yield { event: { event: { case: 'data', value: { output: { case: 'stdout', value } } } } };
  };
  return { bin, connection: { processes: { start } } as unknown as Connection };
}

const ENTRY = "echo 'ada:x:1000:1000:Ada, of London:/home/ada:";

test('the shell is that of the user, as the guest knows it', async () => {
  const { bin, connection } = guestWith({ getent: `${ENTRY}BIN/ash'`, ash: '' });
  expect(await loginShell(connection)).toBe(`${bin}/ash`);
});

test('without getent, as on Alpine, it is that of the passwd file', async () => {
  const { connection } = guestWith({ getent: 'exit 127', id: 'echo root' });
  expect(await loginShell(connection)).toBe('/bin/bash');
});

test('a user who may not log in, and one whose shell is missing or none, get bash', async () => {
  for (const shell of ['/usr/sbin/nologin', '/bin/false', '/nonexistent', '/etc', '']) {
    const { bin, connection } = guestWith({ getent: `${ENTRY}${shell}'`, bash: '' });
    expect(await loginShell(connection), shell).toBe(`${bin}/bash`);
  }
});
