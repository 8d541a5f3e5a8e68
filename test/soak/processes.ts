import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { byPid } from '../support/clients/clients.ts';
import { Following } from '../support/clients/following.ts';
import { bash, follow, input, Workload } from '../support/programs/workload.ts';
import { until } from '../support/until.ts';
import { anyOf, check, checkEqual } from './checks.ts';
import { PATIENCE_MS, type Place } from './place.ts';

/** The most that a process writes here, in bytes: less than what is kept for a client that resumes. */
const MOST_OUTPUT = 250_000;
/** How long input may take to be read and answered, in milliseconds. */
const READ_MS = 300;
/**
 * How often the processes of a shift are told something: as many lines as their pipe holds if they do not read, since a kill
 * loses what is not written yet; and the pause, in milliseconds.
 */
const WORDS = 10;
const BETWEEN_MS = 2000;

let count = 0;

/** The output of a process by its hash, whatever becomes of the daemon meanwhile. */
export async function outputs(place: Place): Promise<void> {
  const from = performance.now();
  const file = join(place.subject.scratch, `output-${count++}`);
  const size = anyOf(MOST_OUTPUT);
  const script = `head -c ${size} /dev/urandom >${file}; cat ${file}; sha256sum <${file} >&2; rm ${file}; exit 7`;
  const pid = await place.start({ process: bash(script), stdin: false });
  const sum = createHash('sha256');
  let told = '';
  const following = new Following(place.clients, pid, (stream, bytes) => {
    if (stream === 'stdout') sum.update(bytes);
    else told += Buffer.from(bytes).toString();
  });
  const end = await place.endOf(following.toEnd(), from);
  if (!end) return;
  checkEqual('the exit code', end.exitCode, place.tellsExits ? 7 : end.exitCode);
  checkEqual(`the hash of ${size} bytes of output`, sum.digest('hex'), told.slice(0, 64));
}

/** A terminal: its size, its input, its output. */
export async function terminals(place: Place): Promise<void> {
  const from = performance.now();
  const [columns, word] = [80 + anyOf(100), `word-${count++}`];
  const script = 'stty -echo; echo ready; read x; echo "<$x>"; stty size; exit 3';
  const pid = await place.start({ process: bash(script), pty: { size: { cols: 80, rows: 24 } } });
  const { following, end } = follow(place.clients, pid);
  const process = byPid(pid);
  const shown = () => Buffer.concat(following.parts.pty).toString();
  const isReady = () => shown().includes('ready') || place.wasAwaySince(from);
  await until('the terminal is ready', isReady, Boolean, PATIENCE_MS);
  await place.surely(() =>
    place.clients.process.update({ process, pty: { size: { cols: columns, rows: 40 } } }),
  );
  await place.input.take(() =>
    place.surely(() => place.clients.process.sendInput({ process, input: input('pty', `${word}\n`) })),
  );
  const ended = await place.endOf(end, from);
  // What is being read from a terminal when the daemon is killed may be lost.
  if (!ended || place.wasAwaySince(from)) return;
  checkEqual('the exit code of a terminal', ended.exitCode, 3);
  checkEqual('the output of a terminal', shown(), `ready\r\n<${word}>\r\n40 ${columns}\r\n`);
}

/** Many at once that end at once; a few with a name, signals and an end by one. */
export async function crowds(place: Place): Promise<void> {
  const from = performance.now();
  const pids = await Promise.all(
    Array.from({ length: 12 }, () => place.start({ process: bash('exec sleep 1000'), tag: 'crowd' })),
  );
  checkEqual('pids in a crowd', new Set(pids).size, pids.length);
  const { processes } = await place.surely(() => place.clients.process.list({}));
  const listed = new Set(processes.map(({ pid }) => pid));
  check(
    'a process that runs is not listed',
    pids.every((pid) => listed.has(pid)),
  );
  for (const pid of pids) {
    const ended = follow(place.clients, pid).end;
    await place.surely(() =>
      place.clients.process.sendSignal({ process: byPid(pid), signal: 9 }).catch((error: unknown) => {
        // The answer before may have been lost.
        if (!/not found/.test(String(error))) throw error;
      }),
    );
    const end = await place.endOf(ended, from);
    const wanted = 'signal: killed';
    if (place.tellsExits) checkEqual('the end of a killed process', end?.status ?? wanted, wanted);
  }
}

/** Processes that live for long, on pipes and in terminals, silent and at full speed; all their bytes. */
export async function shifts(place: Place): Promise<void> {
  const undisturbed = <T>(work: () => Promise<T>) => place.input.take(() => place.thawed.take(work));
  const workload = await undisturbed(() =>
    Workload.start(place.clients, { each: 2, burst: 20_000, interval: 0.5 }),
  );
  for (let word = 0; word < WORDS && !place.stop.aborted; word += 1) {
    await undisturbed(async () => {
      await workload.say();
      await delay(READ_MS);
    });
    await delay(BETWEEN_MS, null, { signal: place.stop }).catch(() => {});
  }
  await undisturbed(() => workload.finish(place.tellsExits || null));
}
