import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

/** How a built program is run once. */
export interface FirstRun {
  readonly settings: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Requests to it, such as `GET /health`, whose functions are to be in the cache. */
  readonly calls: readonly string[];
}

/**
 * Runs a built program once, on loopback, to make V8's cache of the compiled bundle, which Node writes at exit.
 * Throws when the program does not run.
 */
export async function writeCompileCache(
  program: string,
  { settings, env = {}, calls }: FirstRun,
): Promise<void> {
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
