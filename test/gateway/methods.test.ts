import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Sandbox } from 'e2b';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { needs } from '../support/machine/needs.ts';
import { API_KEY, startGateway, type TestGateway } from '../support/programs/gateway.ts';
import { endLoopbackMachines, loopbackHook } from '../support/programs/loopback-machines.ts';

/* docs/gateway.md has a table of all public methods of `Sandbox`. These tests call each method, and compare. */

let gateway: TestGateway;
let machines: string;

beforeAll(async () => {
  machines = mkdtempSync(join(tmpdir(), 'envd-machines-'));
  const hook = loopbackHook(machines);
  const hooks = ['hook', 'create-hook', 'kill-hook', 'resume-hook'].map((name) => `--${name}=${hook}`);
  gateway = await startGateway({ args: [...hooks, '--header-prefix=E2b'] });
});

afterAll(async () => {
  await gateway[Symbol.asyncDispose]();
  endLoopbackMachines(machines);
  rmSync(machines, { recursive: true, force: true });
});

const options = () => ({
  apiKey: API_KEY,
  apiUrl: gateway.url,
  sandboxUrl: gateway.url,
  validateApiKey: false,
});

/** The results in the document, by the name of the method in that column of the table. */
function documented(column: number): Readonly<Record<string, string>> {
  const document = readFileSync(join(import.meta.dirname, '../../docs/gateway.md'), 'utf8');
  const rows = document.split('\n').filter((line) => /^\| (`\w+`|–) +\| (`\w+`|–) +\| \S/.test(line));
  const cells = rows.map((row) => row.split('|').map((cell) => cell.trim()));
  return Object.fromEntries(
    cells.flatMap((row) => {
      const [, name] = /^`(\w+)`$/.exec(row[column] ?? '') ?? [];
      return name === undefined ? [] : [[name, row[3] ?? '']];
    }),
  );
}

/** Methods that the declarations of the client hide. */
const HIDDEN = /^(constructor|length|name|prototype|default\w+|\w+Sandbox|resolve\w+|boundOpts|fileUrl)$/;

function namesOf(object: object): readonly string[] {
  const names: string[] = [];
  for (let each = object; each && each !== Object.prototype && each !== Function.prototype; )
    [each] = [Object.getPrototypeOf(each), names.push(...Object.getOwnPropertyNames(each))];
  return names.filter((name) => !HIDDEN.test(name));
}

type Call = (sandbox: Sandbox, id: string) => unknown;

const CALLS: Readonly<Record<string, Call>> = {
  create: async () => (await Sandbox.create('base', options())).kill(),
  connect: (sandbox) => sandbox.connect(),
  list: () => Sandbox.list(options()).nextItems(),
  getInfo: (sandbox) => sandbox.getInfo(),
  getFullInfo: (_, id) => Sandbox.getFullInfo(id, options()),
  getMetrics: (sandbox) => sandbox.getMetrics(),
  setTimeout: (sandbox) => sandbox.setTimeout(600_000),
  isRunning: (sandbox) => sandbox.isRunning(),
  getHost: (sandbox) => sandbox.getHost(3000),
  uploadUrl: (sandbox) => sandbox.uploadUrl('a'),
  downloadUrl: (sandbox) => sandbox.downloadUrl('a'),
  getMcpUrl: (sandbox) => sandbox.getMcpUrl(),
  getMcpToken: async (sandbox) => {
    if ((await sandbox.getMcpToken()) === undefined) throw new Error('there is no token');
  },
  updateNetwork: (sandbox) => sandbox.updateNetwork({ denyOut: ['0.0.0.0/0'] }),
  fork: (sandbox) => sandbox.fork(),
  createSnapshot: (sandbox) => sandbox.createSnapshot(),
  listSnapshots: (sandbox) => sandbox.listSnapshots().nextItems(),
  deleteSnapshot: () => Sandbox.deleteSnapshot('none', options()),
  pause: (sandbox) => sandbox.pause(),
  betaPause: async (sandbox) => {
    await sandbox.connect();
    await sandbox.betaPause();
  },
  kill: (sandbox) => sandbox.kill(),
};

async function resultOf(call: () => unknown): Promise<string> {
  try {
    await call();
    return 'works';
  } catch (error) {
    return /\b501\b/.test(String(error)) ? '501' : 'needs an MCP server';
  }
}

test('the methods of the published JavaScript client', async () => {
  const names = new Set([...namesOf(Sandbox), ...namesOf(Sandbox.prototype)]);
  expect(Object.keys(CALLS).toSorted()).toEqual([...names].toSorted());
  const sandbox = await Sandbox.create('base', options());
  const results: Record<string, string> = {};
  for (const [name, call] of Object.entries(CALLS))
    results[name] = await resultOf(() => call(sandbox, sandbox.sandboxId));
  expect(results).toEqual(documented(1));
});

const PYTHON = `
import json
from e2b import Sandbox
no_check = {"validate_api_key": False}
sandbox = Sandbox.create("base", **no_check)
def mcp_token():
    if sandbox.get_mcp_token() is None:
        raise Exception("there is no token")
def beta_pause():
    sandbox.connect(**no_check)
    sandbox.beta_pause(**no_check)
calls = {
    "create": lambda: Sandbox.create("base", **no_check).kill(**no_check),
    "connect": lambda: sandbox.connect(**no_check),
    "list": lambda: Sandbox.list(**no_check).next_items(),
    "get_info": lambda: sandbox.get_info(**no_check),
    "get_metrics": lambda: sandbox.get_metrics(**no_check),
    "set_timeout": lambda: sandbox.set_timeout(600, **no_check),
    "is_running": lambda: sandbox.is_running(),
    "get_host": lambda: sandbox.get_host(3000),
    "upload_url": lambda: sandbox.upload_url("a"),
    "download_url": lambda: sandbox.download_url("a"),
    "get_mcp_url": lambda: sandbox.get_mcp_url(),
    "get_mcp_token": mcp_token,
    "update_network": lambda: sandbox.update_network({"deny_out": ["0.0.0.0/0"]}, **no_check),
    "fork": lambda: sandbox.fork(**no_check),
    "create_snapshot": lambda: sandbox.create_snapshot(**no_check),
    "list_snapshots": lambda: sandbox.list_snapshots(**no_check).next_items(),
    "delete_snapshot": lambda: Sandbox.delete_snapshot("none", **no_check),
    "pause": lambda: sandbox.pause(**no_check),
    "beta_pause": beta_pause,
    "kill": lambda: sandbox.kill(**no_check),
}
def result(call):
    try:
        call()
        return "works"
    except Exception as error:
        return "501" if "501" in str(error) else "needs an MCP server" if "MCP" in str(error) or "token" in str(error) else str(error)
names = [name for name in dir(Sandbox) if not name.startswith("_") and callable(getattr(Sandbox, name))]
print(json.dumps({"names": names, "results": {name: result(call) for name, call in calls.items()}}))
`;

test('the methods of the published Python client', async () => {
  needs('the published Python client');
  const env = { E2B_API_KEY: API_KEY, E2B_API_URL: gateway.url, E2B_SANDBOX_URL: gateway.url };
  const { stdout } = await promisify(execFile)('python3', ['-c', PYTHON], {
    env: { ...process.env, ...env },
  });
  const { names, results } = JSON.parse(stdout) as { names: string[]; results: Record<string, string> };
  expect(Object.keys(results).toSorted()).toEqual(names.toSorted());
  expect(results).toEqual(documented(2));
});
