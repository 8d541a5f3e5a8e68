import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { copyFileSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
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

/** V8's tables have the same order in each run with this flag, which is none of those that its code depends on. */
const SEEDED = ' --random-seed=1 --disable-sigusr1 ';
/** Of four runs, about one leaves the padding clear. */
const MOST_RUNS = 60;

export interface CodeCacheOptions {
  /**
   * Whether two builds must have the same code. V8 does not clear the padding of its objects, so the code of a run differs where
   * memory was used before; the first code that comes twice has none of that.
   */
  readonly reproducible: boolean;
}

/**
 * Puts the loader beside the program `name` in `dist`, runs the program once on loopback, or several times, and keeps the code that V8
 * has compiled by the end. The program's launcher runs it, because V8 accepts only code that was compiled with the same flags. Throws
 * when the program does not run, or when no code comes twice.
 */
export async function writeCodeCache(
  dist: string,
  name: string,
  loader: string,
  run: FirstRun,
  { reproducible }: CodeCacheOptions,
): Promise<void> {
  const own = join(dist, 'lib', `${name}.cjs`);
  const code = join(dist, 'lib', `${name}.code`);
  const launcher = join(dist, 'bin', name);
  const seeded = join(dist, 'bin', `${name}.seeded`);
  writeFileSync(own, readFileSync(loader, 'utf8') + KEEP_CODE);
  writeFileSync(seeded, readFileSync(launcher, 'utf8').replace(' --disable-sigusr1 ', SEEDED), {
    mode: 0o755,
  });
  const seen = new Set<string>();
  for (let runs = 1; ; runs += 1) {
    writeFileSync(code, '');
    await runOnce(seeded, run);
    const digest = createHash('sha256').update(readFileSync(code)).digest('hex');
    if (!reproducible || seen.has(digest)) break;
    if (runs === MOST_RUNS) throw new Error(`${runs} runs of '${name}' had as many different codes`);
    seen.add(digest);
  }
  rmSync(seeded);
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
