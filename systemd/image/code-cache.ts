import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';

/** How a built program is run once. */
export interface FirstRun {
  readonly settings: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Requests to the program, such as `GET /health`, whose functions the cache must have. */
  readonly calls: readonly string[];
}

/**
 * Flags of that run, with which the code does not depend on the moment. The seed orders V8's tables. Sparkplug writes what it has estimated
 * into the objects that are kept, when it finds time to. Collections of garbage replace strings, whose kinds V8 notes in the code, so there are
 * none: the heap is large from the beginning.
 */
const FLAGS = [
  ...['--predictable', '--random-seed=1', '--no-sparkplug'],
  ...['--min-semi-space-size=64', '--max-semi-space-size=64', '--initial-heap-size=1024'],
];
/** V8 accepts code that was kept under the flags of the launcher; it ignores the first two of those above. */
const DEFAULTS = ['--sparkplug', '--min-semi-space-size=0', '--initial-heap-size=0'];
/** The timers of a start have passed by then, however slow the machine is: what they call is in the code. */
const TIMERS_MS = 1500;
/** A longer timer passes on a slow machine alone, so none does in that run. */
const LONGEST_TIMER_MS = 1000;

/** What follows an answer, such as the writing of a log line, has ended by then. */
const QUIET_MS = 250;

/** This is put before the loader for that run. */
const SHORT_TIMERS = `
for (const name of ['setTimeout', 'setInterval']) {
  const own = globalThis[name];
  globalThis[name] = (work, ms, ...values) => own(ms > ${LONGEST_TIMER_MS} ? () => {} : work, ms, ...values);
}
`;

/**
 * This is appended to the loader for that run. It ends the program before that stops by itself, because lines of a log may overtake each
 * other then. The first value of an option is the launcher's.
 */
const KEEP_CODE = `
process.prependOnceListener('SIGTERM', () => {
  const own = process.execArgv.filter((flag) => flag.startsWith('--max-semi-space-size=')).slice(0, 1);
  for (const flag of [...${JSON.stringify(DEFAULTS)}, ...own]) require('node:v8').setFlagsFromString(flag);
  require('node:fs').writeFileSync(\`\${path}.code\`, exports.script.createCachedData());
  process.exit();
});
`;

/**
 * Puts the loader beside the program `name` in `dist`, runs the program once on loopback, and keeps the code that V8 has compiled by
 * then. Two runs keep the same bytes, wherever `dist` is. The program's launcher runs it, because V8 accepts only code that was compiled
 * with the same flags. Throws when the program does not run.
 */
export async function writeCodeCache(
  dist: string,
  name: string,
  loader: string,
  run: FirstRun,
): Promise<void> {
  const own = join(dist, 'lib', `${name}.cjs`);
  const launcher = join(dist, 'bin', name);
  const first = `${launcher}.first`;
  // The code contains the path of its text, and gets that of the loader when it is loaded.
  // biome-ignore lint/suspicious/noTemplateCurlyInString: it is a part of the loader.
  const text = replaced(readFileSync(loader, 'utf8'), 'filename: `${path}.js`', `filename: '/${name}.js'`);
  writeFileSync(own, SHORT_TIMERS + text + KEEP_CODE);
  writeFileSync(join(dist, 'lib', `${name}.code`), '');
  const program = ` "$lib/${name}.cjs"`;
  const command = replaced(readFileSync(launcher, 'utf8'), program, ` ${FLAGS.join(' ')}${program}`);
  writeFileSync(first, command, { mode: 0o755 });
  await runOnce(first, run);
  rmSync(first);
  copyFileSync(loader, own);
}

function replaced(text: string, part: string, by: string): string {
  if (!text.includes(part)) throw new Error(`'${part}' is missing in:\n${text}`);
  return text.replace(part, () => by);
}

async function runOnce(program: string, { settings, env = {}, calls }: FirstRun): Promise<void> {
  // Node loads other modules of its own for other kinds of streams, and V8 numbers functions in the order in which they are made.
  const running = spawn(program, settings, { stdio: ['ignore', 'pipe', 'pipe'], env });
  running.stderr.pipe(process.stderr);
  const ended = once(running, 'close');
  try {
    const port = await listeningPort(createInterface({ input: running.stdout }));
    await delay(TIMERS_MS);
    for (const call of calls) {
      const [method = '', path = ''] = call.split(' ');
      const body = method === 'POST' ? { body: '{}', headers: { 'content-type': 'application/json' } } : {};
      await fetch(`http://127.0.0.1:${port}${path}`, { method, ...body });
      await delay(QUIET_MS);
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
