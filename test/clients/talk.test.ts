import { execFile } from 'node:child_process';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { beforeEach, expect, test } from 'vitest';
import { type Outcome, patternOf, readBlocks } from '../support/documents.ts';
import { needs } from '../support/needs.ts';
import { scratch } from '../support/scratch.ts';

/* Each block of docs/talk.md as it stands, in namespaces in which the ports are free and the user exists. */

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const GUEST = fileURLToPath(new URL('../support/talk-guest.ts', import.meta.url));
const SCRIPT = `ip link set lo up && mount -t tmpfs tmpfs /home && mkdir /home/user && chown 1000:1000 /home/user &&
mount --bind passwd /etc/passwd && mount --bind group /etc/group && exec "$@"`;
const blocks = readBlocks('docs/talk.md');

async function runAll(): Promise<Outcome[]> {
  const directory = scratch();
  for (const name of ['node_modules', 'proto']) symlinkSync(join(ROOT, name), join(directory, name));
  const users = ['root:x:0:0::/root:/bin/bash', 'user:x:1000:1000::/home/user:/bin/bash', ''];
  writeFileSync(join(directory, 'passwd'), users.join('\n'));
  writeFileSync(join(directory, 'group'), 'root:x:0:\nuser:x:1000:\n');
  mkdirSync(join(directory, 'hooks'));
  const args = ['--net', '--mount', 'sh', '-c', SCRIPT, 'sh', process.execPath, GUEST];
  const child = promisify(execFile)('unshare', args, { cwd: directory, timeout: 170_000 });
  child.child.stdin?.end(JSON.stringify(blocks));
  return JSON.parse((await child).stdout) as Outcome[];
}

let outcomes: Outcome[];
beforeEach(async () => {
  needs('mounts', 'ip', 'curl', 'openssl', 'python3');
  outcomes ??= await runAll();
}, 180_000);

test.each(blocks.map((block, index) => [block.heading, block.line, index] as const))(
  '%s: the block at line %i prints what is below it',
  (_heading, _line, index) => {
    const { language, code, output } = blocks[index] ?? { language: '', code: '', output: '' };
    const { stdout, stderr, exitCode } = outcomes[index] ?? { stdout: '', stderr: '', exitCode: null };
    if (language === 'html') needs('chromium');
    if (/^e2b /m.test(code)) needs('the published command-line client');
    // Chromium complains about a machine without a desktop.
    expect({ exitCode, stderr: language === 'html' ? '' : stderr }).toEqual({ exitCode: 0, stderr: '' });
    expect(stdout).toMatch(patternOf(output));
  },
);
