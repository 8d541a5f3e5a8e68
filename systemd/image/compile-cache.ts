import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

/** Requests to the daemon, so that the cache also holds the functions of its first calls. */
const FIRST_CALLS = [
  ['GET', '/health'],
  ['POST', '/process.Process/List'],
] as const;

/**
 * Runs the built daemon once, on loopback, to make V8's cache of the compiled bundle, which Node writes at exit.
 * Throws when the daemon does not run.
 */
export async function writeCompileCache(program: string, runtimeDirectory: string): Promise<void> {
  const settings = [
    '--host=127.0.0.1',
    '--port=0',
    '--no-cgroups',
    `--runtime-directory=${runtimeDirectory}`,
  ];
  const daemon = spawn(program, settings, { stdio: ['ignore', 'pipe', 'inherit'], env: {} });
  const ended = once(daemon, 'close');
  try {
    const port = await listeningPort(createInterface({ input: daemon.stdout }));
    for (const [method, path] of FIRST_CALLS) {
      const body = method === 'POST' ? { body: '{}', headers: { 'content-type': 'application/json' } } : {};
      await fetch(`http://127.0.0.1:${port}${path}`, { method, ...body });
    }
  } finally {
    daemon.kill();
  }
  const [code] = await ended;
  if (code !== 0) throw new Error(`'${program}' exited with ${code}`);
}

async function listeningPort(lines: AsyncIterable<string>): Promise<number> {
  for await (const line of lines) {
    const { msg, port } = JSON.parse(line) as { msg: string; port?: number };
    if (msg === 'ready' && port !== undefined) return port;
  }
  throw new Error('the daemon ended before it was ready');
}
