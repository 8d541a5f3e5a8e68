import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

/** How a built program is run once. */
export interface FirstRun {
  readonly settings: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Requests to the program, such as `GET /health`, whose functions the cache must have. */
  readonly calls: readonly string[];
}

/** This is appended to the loader for that run. */
const KEEP_CODE = `
process.on('exit', () => require('node:fs').writeFileSync(\`\${path}.code\`, exports.script.createCachedData()));
`;

/**
 * Puts the loader beside the program `name` in `dist`, runs the program once on loopback, and keeps the code that V8 has compiled by the
 * end. The program's launcher runs it, because V8 accepts only code that was compiled with the same flags. Throws when the program does
 * not run.
 */
export async function writeCodeCache(
  dist: string,
  name: string,
  loader: string,
  run: FirstRun,
): Promise<void> {
  const own = join(dist, 'lib', `${name}.cjs`);
  writeFileSync(own, readFileSync(loader, 'utf8') + KEEP_CODE);
  writeFileSync(join(dist, 'lib', `${name}.code`), '');
  await runOnce(join(dist, 'bin', name), run);
  copyFileSync(loader, own);
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
