import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { beforeEach, describe, expect, type TestOptions, test } from 'vitest';
import { readBlocks } from './support/code/documents.ts';
import { needs } from './support/machine/needs.ts';
import { scratch } from './support/machine/scratch.ts';

/* Each command of README.md as it stands, beside `npm start` in a network of its own. */

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const START = 'npm start';
/** What the others end with, and what they print. */
const PRINTED: Readonly<Record<string, readonly [exitCode: string, output: RegExp]>> = {
  'curl localhost:49983/exec -d \'{"cmd":"uname","args":["-sm"]}\'': [
    '0',
    /"exitCode":0,.*"stdout":"Linux (x86_64|aarch64)\\n"/,
  ],
  'npm start -- --help': ['0', /^ +--port .*ENVD_PORT/m],
};
const NOT_RUN: Readonly<Record<string, string>> = {
  'npm run envctl -- console': 'it runs until it is ended; test/cli/console/ starts the same',
  'npm run demo': 'test/daemon/project/demo.test.ts runs its program',
};
const SCRIPT = `ip link set lo up && { ${START} >/dev/null 2>&1 & } && until curl -sf localhost:49983/health; do sleep 0.1; done
for command; do output=$(bash -c "$command" 2>&1); printf '%s\\0%s\\0' $? "$output"; done`;

const commands = readBlocks('README.md').flatMap(({ code }) => code.trim().split('\n'));
/** Without what is said about it. */
const bare = (line: string) => line.replace(/ +#.*$/, '');
const others = commands.map(bare).filter((command) => command !== START && !(command in NOT_RUN));

describe('README.md', () => {
  let printed: string[];
  beforeEach(async () => {
    needs('mounts', 'ip', 'curl');
    printed ??= await runAll();
  });

  async function runAll(): Promise<string[]> {
    const namespaces = ['--net', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc'];
    // What the daemon would find on this machine.
    const settings = {
      ENVD_NO_CGROUPS: '1',
      ENVD_METADATA_SERVICE: 'off',
      ENVD_RUNTIME_DIRECTORY: scratch(),
    };
    const { stdout } = await promisify(execFile)(
      'unshare',
      [...namespaces, 'bash', '-c', SCRIPT, 'bash', ...others],
      {
        ...{ cwd: ROOT, timeout: 100_000, env: { ...process.env, ...settings } },
      },
    );
    return stdout.split('\0');
  }

  test(`${START} starts a daemon that answers`, () => {
    expect(commands.map(bare)).toContain(START);
    expect(printed).toHaveLength(2 * others.length + 1);
  });

  test.each(others)('%s', (command) => {
    const [exitCode, output] = printed.slice(2 * others.indexOf(command));
    const [wantedCode, wanted] = PRINTED[command] ?? ['it is to be known', /^$/];
    expect(exitCode).toBe(wantedCode);
    expect(output).toMatch(wanted);
  });
});

for (const command of commands.map(bare)) {
  const notRun = NOT_RUN[command];
  if (notRun) test(command, { skip: true, meta: { notRun } } satisfies TestOptions, () => {});
}
