import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Script } from 'node:vm';

/** How a built program is run once. */
export interface FirstRun {
  readonly settings: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Requests to it, such as `GET /health`, whose functions are to be in the cache. */
  readonly calls: readonly string[];
}

/** What the names of a program's files end in: it has two parts (loader.cjs). */
export const PARTS = ['', '-later'] as const;

/**
 * Runs the program `name` in `dist` once, on loopback, and writes the code that V8 has compiled of its parts by its end, for the
 * loader. Throws when the program does not run.
 */
export async function writeCodeCache(dist: string, name: string, run: FirstRun): Promise<void> {
  const wrapper = join(dist, 'lib', 'first-run.cjs');
  const launcher = join(dist, 'bin', 'first-run');
  const files = PARTS.map((part) => join(dist, 'lib', `${name}${part}.code`));
  writeFileSync(wrapper, `(${keepCode})(() => require('./${name}.cjs').parts, ${JSON.stringify(files)});`);
  // V8 takes code that was compiled with the same flags: those of the launcher.
  const text = readFileSync(join(dist, 'bin', name), 'utf8').replace(`/${name}.cjs"`, '/first-run.cjs"');
  writeFileSync(launcher, text, { mode: 0o755 });
  try {
    await runOnce(launcher, run);
  } finally {
    rmSync(wrapper);
    rmSync(launcher);
  }
}

/**
 * Put into the wrapper as text, so it uses nothing of this module: runs the program, and writes the code of its parts at the end, each
 * with the flags that V8 had when the part was loaded.
 */
function keepCode(run: () => readonly Part[], files: readonly string[]): void {
  const { getBuiltinModule } = process;
  const v8 = getBuiltinModule('v8');
  const { writeFileSync } = getBuiltinModule('fs');
  const { setFlagsFromString } = v8;
  const setBeforeLater: string[] = [];
  let parts: readonly Part[] = [];
  v8.setFlagsFromString = (flag) => {
    if (!parts[1]?.script) setBeforeLater.push(flag);
    setFlagsFromString(flag);
  };
  const keep = (index: number) => {
    const part = parts[index];
    if (!part) return;
    if (!part.script) part.load();
    const code = part.script?.createCachedData();
    if (code) writeFileSync(files[index] ?? '', code);
  };
  process.on('exit', () => {
    // As they were; later ones may have undone them already.
    for (const flag of setBeforeLater) setFlagsFromString(flag.replace('--no-', '--'));
    keep(0);
    for (const flag of setBeforeLater) setFlagsFromString(flag);
    keep(1);
  });
  parts = run();
}

interface Part {
  readonly script: Script | null;
  load(): void;
}

async function runOnce(program: string, { settings, env = {}, calls }: FirstRun): Promise<void> {
  const running = spawn(program, settings, { stdio: ['ignore', 'pipe', 'inherit'], env });
  const ended = once(running, 'close');
  try {
    const port = await listeningPort(createInterface({ input: running.stdout }));
    for (const call of calls) {
      const [method = '', path = ''] = call.split(' ');
      const body = method === 'POST' ? { body: '{}', headers: { 'content-type': 'application/json' } } : {};
      await fetch(`http://127.0.0.1:${port}${path}`, { method, ...body });
    }
  } finally {
    running.kill();
  }
  const [code] = await ended;
  if (code !== 0) throw new Error(`'${program}' exited with ${code}`);
}

async function listeningPort(lines: AsyncIterable<string>): Promise<number> {
  for await (const line of lines) {
    const { msg, port } = JSON.parse(line) as { msg: string; port?: number };
    if (msg === 'ready' && port !== undefined) return port;
  }
  throw new Error('the program ended before it was ready');
}
