import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { e2b } from '@computesdk/e2b';
import { afterAll, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { MASTRA_MODULE } from '../support/clients/frameworks.ts';
import { needs } from '../support/machine/needs.ts';
import { API_KEY, startGateway, type TestGateway } from '../support/programs/gateway.ts';
import { endLoopbackMachines, loopbackHook } from '../support/programs/loopback-machines.ts';
import { until } from '../support/until.ts';

/* Frameworks above the published clients, which are configured by the variables of these clients alone. */

/** Some of them refuse keys of another form. */
const KEY = `e2b_${'a1'.repeat(20)}`;

let gateway: TestGateway;
let machines: string;

beforeAll(async () => {
  machines = mkdtempSync(join(tmpdir(), 'envd-machines-'));
  const keys = join(machines, 'keys');
  writeFileSync(keys, `platform ${API_KEY}-of-the-file\nclient ada ${KEY}\n`);
  const hook = loopbackHook(machines);
  const hooks = ['hook', 'create-hook', 'kill-hook', 'resume-hook'].map((name) => `--${name}=${hook}`);
  gateway = await startGateway({ args: [...hooks, '--header-prefix=E2b', `--key-file=${keys}`] });
});

beforeEach(() => {
  for (const [name, value] of Object.entries(variables())) vi.stubEnv(name, value);
});

afterAll(async () => {
  await gateway[Symbol.asyncDispose]();
  endLoopbackMachines(machines);
  rmSync(machines, { recursive: true, force: true });
});

const variables = () => ({ E2B_API_KEY: KEY, E2B_API_URL: gateway.url, E2B_SANDBOX_URL: gateway.url });

async function stateOf(id: string): Promise<string> {
  const { status, body } = await gateway.call(`GET /sandboxes/${id}`);
  return status === 404 ? 'gone' : body.state;
}

test('@computesdk/e2b', async () => {
  const compute = e2b({ apiKey: KEY });
  const sandbox = await compute.sandbox.create({ metadata: { of: 'compute' }, envs: { COLOR: 'red' } });
  const id = sandbox.sandboxId;
  expect(
    await sandbox.runCommand('printenv COLOR ANIMAL; pwd; echo bad >&2; exit 3', {
      cwd: machines,
      env: { ANIMAL: 'fox' },
    }),
  ).toMatchObject({ stdout: `red\nfox\n${machines}\n`, stderr: 'bad\n', exitCode: 3 });

  const file = join(machines, 'compute/a.txt');
  await sandbox.filesystem.mkdir(join(machines, 'compute'));
  await sandbox.filesystem.writeFile(file, 'content ä');
  expect(await sandbox.filesystem.readFile(file)).toBe('content ä');
  expect(await sandbox.filesystem.readdir(join(machines, 'compute'))).toMatchObject([
    { name: 'a.txt', type: 'file' },
  ]);
  await sandbox.filesystem.remove(file);
  expect(await sandbox.filesystem.exists(file)).toBe(false);

  const begun = await sandbox.runCommand(`sh -c 'echo begun >${file}; sleep 1003'`, { background: true });
  expect(begun.exitCode).toBe(0);
  // Which no other test has.
  await until('it runs', async () => (await sandbox.runCommand("pgrep -xf 'sleep 1003'")).exitCode === 0);

  expect((await compute.sandbox.list()).map(({ sandboxId }) => sandboxId)).toContain(id);
  const again = await compute.sandbox.getById(id);
  expect((await again?.runCommand(`cat ${file}`))?.stdout).toBe('begun\n');
  expect(await compute.sandbox.getById('unknown')).toBeNull();
  await compute.sandbox.destroy(id);
  expect(await stateOf(id)).toBe('gone');
});

/** What is used of it. */
interface MastraSandbox {
  readonly e2b: { readonly sandboxId: string };
  readonly processes: {
    spawn(command: string, options?: object): Promise<MastraProcess>;
    list(): Promise<readonly { readonly pid: string }[]>;
    get(pid: string): Promise<MastraProcess | undefined>;
    kill(pid: string): Promise<boolean>;
  };
  executeCommand(command: string, args?: readonly string[], options?: object): Promise<MastraResult>;
  writeFiles(files: readonly { readonly path: string; readonly content: string }[]): Promise<void>;
  _start(): Promise<unknown>;
  _stop(): Promise<void>;
  _destroy(): Promise<void>;
}

interface MastraResult {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number;
}

interface MastraProcess {
  readonly pid: string;
  readonly stdout: string;
  sendStdin(text: string): Promise<void>;
  wait(): Promise<MastraResult>;
}

test('@mastra/e2b', { timeout: 600_000 }, async () => {
  needs('@mastra/e2b');
  const { E2BSandbox } = (await import(MASTRA_MODULE)) as {
    readonly E2BSandbox: new (options: object) => MastraSandbox;
  };
  const sandbox = new E2BSandbox({ id: 'of-mastra', template: 'base', env: { COLOR: 'red' } });
  await sandbox._start();
  const id = sandbox.e2b.sandboxId;
  const script = 'echo "$COLOR $1"; echo bad >&2';
  expect(await sandbox.executeCommand('sh', ['-c', script, 'sh', 'a b'])).toMatchObject({
    ...{ stdout: 'red a b\n', stderr: 'bad\n', exitCode: 0 },
  });
  expect((await sandbox.executeCommand('exit 3')).exitCode).toBe(3);
  const file = join(machines, 'mastra.txt');
  await sandbox.writeFiles([{ path: file, content: 'content ä' }]);
  expect((await sandbox.executeCommand('cat', [file])).stdout).toBe('content ä');

  const process = await sandbox.processes.spawn('cat; echo done');
  await process.sendStdin('line\n');
  await until('it has answered', () => process.stdout.includes('line'));
  expect((await sandbox.processes.list()).map(({ pid }) => pid)).toContain(process.pid);
  const background = await sandbox.processes.spawn('sleep 1000');

  await sandbox._stop();
  expect(await stateOf(id)).toBe('paused');
  await sandbox._start();
  expect(sandbox.e2b.sandboxId).toBe(id);
  expect(await stateOf(id)).toBe('running');
  expect((await sandbox.executeCommand('cat', [file])).stdout).toBe('content ä');
  const running = (await sandbox.processes.list()).map(({ pid }) => pid);
  expect(running).toEqual(expect.arrayContaining([process.pid, background.pid]));
  expect(await sandbox.processes.kill(background.pid)).toBe(true);
  await until('it is not listed any more', async () =>
    (await sandbox.processes.list()).every(({ pid }) => pid !== background.pid),
  );

  await sandbox._stop();
  await sandbox._destroy();
  expect(await stateOf(id)).toBe('gone');
});

const LANGCHAIN = `
import json, sys
from e2b import Sandbox
from langchain_e2b_selfhost import E2BSelfHostedSandbox
root = sys.argv[1]
sandbox = Sandbox.create(timeout=600)
box = E2BSelfHostedSandbox(sandbox=sandbox)
told = {"id": box.id == sandbox.sandbox_id}
run = lambda command: (lambda r: [r.output, r.exit_code])(box.execute(command))
told["execute"] = run("echo out; echo bad >&2; exit 3")
told["timeout"] = box.execute("sleep 100", timeout=1).exit_code
told["upload"] = [r.error for r in box.upload_files([(root + "/up/a.bin", bytes(range(256))), ("relative", b"")])]
[there, missing] = box.download_files([root + "/up/a.bin", root + "/up/none"])
told["download"] = [there.content == bytes(range(256)), missing.error]
told["write"] = [box.write(root + "/up/b.py", "one = 1\\ntwo = 2\\n").error, box.write(root + "/up/b.py", "").error is not None]
told["edit"] = [box.edit(root + "/up/b.py", "two = 2", "two = 'zwei ä'").occurrences, box.edit(root + "/up/b.py", "none", "x").error is not None]
told["read"] = box.read(root + "/up/b.py").file_data["content"]
told["ls"] = sorted(each["path"] for each in box.ls(root + "/up").entries)
told["grep"] = [[each["path"], each["line"], each["text"]] for each in box.grep("zwei", root + "/up").matches]
told["glob"] = [each["path"] for each in box.glob("*.py", root + "/up").matches]
told["kill"] = sandbox.kill()
print(json.dumps(told))
`;

test('langchain-e2b-selfhost', { timeout: 600_000 }, async () => {
  needs('langchain-e2b-selfhost');
  const { stdout } = await promisify(execFile)('python3', ['-c', LANGCHAIN, machines], {
    env: { ...process.env, ...variables() },
  });
  expect(JSON.parse(stdout)).toEqual({
    id: true,
    execute: ['out\n\n<stderr>bad\n</stderr>\n<stderr>exit status 3</stderr>', 3],
    timeout: 124,
    upload: [null, 'invalid_path'],
    download: [true, 'file_not_found'],
    write: [null, true],
    edit: [1, true],
    read: "one = 1\ntwo = 'zwei ä'",
    ls: [`${machines}/up/a.bin`, `${machines}/up/b.py`],
    grep: [[`${machines}/up/b.py`, 2, "two = 'zwei ä'"]],
    glob: ['b.py'],
    kill: true,
  });
});
