import { spawn } from 'node:child_process';
import { closeSync, openSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { until } from '../until.ts';
import { daemonCommand } from './programs.ts';

/*
 * A hook whose machines are real daemons on loopback. Usage: loopback-machines.ts DIRECTORY, with `EVENT` and `SANDBOX_ID` in the
 * environment, as hooks have them. Pause and resume are signals to the process.
 */

const PROGRAM = fileURLToPath(import.meta.url);

/** The command of the hook. */
export const loopbackHook = (directory: string) => `exec '${process.execPath}' '${PROGRAM}' '${directory}'`;

/** What the hook was told, a request for each call. */
export function loopbackCalls(directory: string): readonly Record<string, unknown>[] {
  return readdirSync(directory)
    .filter((name) => name.endsWith('.json'))
    .map((name) => JSON.parse(readFileSync(join(directory, name), 'utf8')) as Record<string, unknown>);
}

/** Ends what the hook has started and nobody has removed. */
export function endLoopbackMachines(directory: string): void {
  for (const name of readdirSync(directory))
    if (name.endsWith('.pid')) signal(join(directory, name), 'SIGKILL');
}

function signal(file: string, name: NodeJS.Signals): void {
  try {
    process.kill(Number(readFileSync(file, 'utf8')), name);
  } catch {
    // It has ended.
  }
}

async function create(directory: string, id: string): Promise<void> {
  const log = openSync(join(directory, `${id}.log`), 'a');
  const [program, ...before] = daemonCommand();
  const args = ['--host=127.0.0.1', '--port=0', `--runtime-directory=${directory}/${id}.run`];
  const env = { PATH: process.env.PATH, TMPDIR: directory, ENVD_METADATA_SERVICE: 'off' };
  const child = spawn(program, [...before, ...args], { env, detached: true, stdio: ['ignore', log, log] });
  child.unref();
  closeSync(log);
  writeFileSync(join(directory, `${id}.pid`), String(child.pid));
  const port = await until('the daemon is ready', () => portIn(join(directory, `${id}.log`)));
  const init = { defaultUser: 'root', envVars: { OF_THE_HOOK: 'yes', HOME: directory } };
  process.stdout.write(`a line for the log\n${JSON.stringify({ address: '127.0.0.1', port, init })}\n`);
}

function portIn(log: string): number | null {
  const lines = readFileSync(log, 'utf8')
    .split('\n')
    .filter((line) => line.startsWith('{') && line.endsWith('}'));
  const ready = lines.map((line) => JSON.parse(line)).find(({ msg }) => msg === 'ready');
  return ready ? Number(ready.port) : null;
}

async function main(directory: string): Promise<void> {
  const { EVENT: event = '', SANDBOX_ID: id = '', TEMPLATE_ID: template } = process.env;
  const told = readFileSync(0, 'utf8');
  // Whoever looks at the calls finds all of one or nothing.
  const file = join(directory, `${id}-${event}`);
  writeFileSync(file, told);
  renameSync(file, `${file}.json`);
  if (template === 'missing')
    process.stdout.write('{"error":"template \'missing\' is not known","code":404}\n');
  else if (template === 'broken') process.exitCode = 7;
  else if (event === 'create') await create(directory, id);
  else if (event === 'kill') signal(join(directory, `${id}.pid`), 'SIGKILL');
}

if (process.argv[1] === PROGRAM) await main(process.argv[2] ?? '');
