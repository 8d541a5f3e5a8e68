import { readFileSync } from 'node:fs';
import type { Backend } from './backend.ts';
import { backendOf } from './backends.ts';
import { readSettings, type Settings } from './settings.ts';
import { messageOf } from './tools.ts';

/*
 * All hooks of the gateway. Usage: hook.ts DIRECTORY, with `OUTCOME`, `SANDBOX_ID` and `TEMPLATE_ID` in the environment, and a
 * request on the standard input. See docs/gateway.md#hooks for what a hook gets and answers.
 */

/** The only template: its root file system is what every sandbox begins with. */
const TEMPLATE = 'base';

async function main(directory: string): Promise<void> {
  const { OUTCOME: outcome, SANDBOX_ID: id = '', TEMPLATE_ID: template = TEMPLATE } = process.env;
  const settings = readSettings(directory);
  const backend = backendOf(settings);
  if (template !== TEMPLATE) {
    answer({ error: `template '${template}' is not known, only '${TEMPLATE}'`, code: 404 });
    return;
  }
  if (outcome === 'create') {
    const memory = memoryFor(settings);
    if (memory !== null) answer(await create(backendOf({ ...settings, memory }), id, memory));
  } else if (outcome === 'pause') await backend.pause(id);
  else if (outcome === 'resume') await backend.resume(id);
  else if (outcome === 'remove') await backend.remove(id);
  else throw new Error(`there is no outcome '${outcome}'`);
}

/** What a create hook gets, as far as it counts here. */
interface CreateRequest {
  readonly owner: string | null;
  readonly quota: { readonly memory: number | null };
}

/** Returns the memory of a new sandbox in MiB, which is at most the quota of its owner. Answers with a refusal if there is too little. */
function memoryFor({ backend, memory }: Settings): number | null {
  const { owner, quota } = JSON.parse(readFileSync(0, 'utf8')) as CreateRequest;
  const most = Math.min(memory, quota.memory ?? memory);
  // A machine is a copy of one that has booted, so all have the same memory.
  if (backend === 'container' || most === memory) return most;
  answer({ error: `a sandbox needs ${memory} MiB, and '${owner}' may have ${most}`, code: 403 });
  return null;
}

async function create(backend: Backend, id: string, memoryMB: number): Promise<object> {
  const { init, ...made } = await backend.create(id);
  return { ...made, memoryMB, init: { ...init, defaultUser: 'user' } };
}

function answer(value: object): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

await main(process.argv[2] ?? '').catch((error: unknown) => {
  // The gateway logs the last part of what a failed hook prints.
  process.stderr.write(`${messageOf(error)}\n`);
  process.exitCode = 1;
});
