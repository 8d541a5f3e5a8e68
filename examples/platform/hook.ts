import type { Backend } from './backend.ts';
import { backendOf } from './backends.ts';
import { readSettings } from './settings.ts';
import { messageOf } from './tools.ts';

/*
 * All hooks of the gateway. Usage: hook.ts DIRECTORY, with `OUTCOME`, `SANDBOX_ID` and `TEMPLATE_ID` in the environment. See
 * docs/gateway.md#hooks for what a hook gets and answers.
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
  if (outcome === 'create') answer(await create(backend, id, settings.memory));
  else if (outcome === 'pause') await backend.pause(id);
  else if (outcome === 'resume') await backend.resume(id);
  else if (outcome === 'remove') await backend.remove(id);
  else throw new Error(`there is no outcome '${outcome}'`);
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
