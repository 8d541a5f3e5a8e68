import { Code, ConnectError } from '@connectrpc/connect';
import { byPid } from '../support/clients/clients.ts';
import { type Case, type Need, NotRun, type Section } from './cases.ts';
import { Daemon } from './daemon.ts';
import { type Guest, lookAround, type Run } from './guest.ts';

export interface Result {
  readonly name: string;
  readonly outcome: 'passed' | 'failed' | 'not run';
  readonly milliseconds: number;
  /** Why it failed, or was not run. */
  readonly reason?: string;
}

export interface SectionResult {
  readonly number: string;
  readonly title: string;
  readonly results: readonly Result[];
}

/** A case that does not end takes its connections with it. */
const CLEAN_UP_MS = 10_000;

/** Runs one case after the other, and tells each section when it is complete. */
export async function runAll(
  run: Run,
  sections: readonly Section[],
  limitMs: number,
  tell: (section: SectionResult) => void,
): Promise<void> {
  const add = (number: string, title: string, results: readonly Result[]) => tell({ number, title, results });
  let guest: Guest | null = null;
  const look = async (daemon: Daemon) => {
    guest = await lookAround(daemon);
  };
  const first = { name: 'a file is read, and a program run: who is there', needs: [], check: look };
  add('0', 'The guest', [await runCase(run, null, first, 'guest', limitMs)]);
  if (guest) {
    for (const { number, title, cases } of sections) {
      const results: Result[] = [];
      for (const [index, each] of cases.entries())
        results.push(await runCase(run, guest, each, `${number}-${index}`, limitMs));
      add(number, title, results);
    }
  }
  const last = { name: 'nothing is left behind', needs: [], check: (daemon: Daemon) => cleanUp(daemon) };
  add('9', 'Afterwards', [await runCase(run, guest, last, 'end', limitMs)]);
}

async function runCase(
  run: Run,
  guest: Guest | null,
  { name, needs, check }: Case,
  directory: string,
  limitMs: number,
): Promise<Result> {
  const missing = needs.map((need) => reasonAgainst(need, run, guest)).find((reason) => reason !== null);
  if (missing) return { name, outcome: 'not run', milliseconds: 0, reason: missing };
  const started = performance.now();
  const daemon = new Daemon(run, guest, directory);
  const error = await within(limitMs, check(daemon)).then(
    () => null,
    (reason: unknown) => reason,
  );
  await within(CLEAN_UP_MS, daemon[Symbol.asyncDispose]()).catch(() => daemon.connections[Symbol.dispose]());
  const milliseconds = Math.round(performance.now() - started);
  if (error === null) return { name, outcome: 'passed', milliseconds };
  const outcome = error instanceof NotRun ? 'not run' : 'failed';
  return { name, outcome, milliseconds, reason: reasonOf(error) };
}

function reasonAgainst(need: Need, { token, options }: Run, guest: Guest | null): string | null {
  switch (need) {
    case 'token':
      return token === null ? 'no --token is given' : null;
    case 'no token':
      return token === null ? null : 'a token is set';
    case 'root':
      return guest?.user.uid === 0 ? null : 'the default user is not root';
    case 'another user':
      return guest?.other && guest.user.uid === 0
        ? null
        : 'the guest has no other user, or its daemon is not root';
    case 'cgroups':
      return guest?.cgroups ? null : 'the guest has no cgroup v2 that its daemon can write';
    default:
      return options.has(need) ? null : `--${need} is not given`;
  }
}

/** Fails after the limit; the work is not ended by that. */
async function within<T>(limitMs: number, work: Promise<T>): Promise<T> {
  const over = Promise.withResolvers<never>();
  const timer = setTimeout(
    () => over.reject(new Error(`it has not ended within ${limitMs / 1000} s`)),
    limitMs,
  );
  try {
    return await Promise.race([work, over.promise]);
  } finally {
    clearTimeout(timer);
    work.catch(() => {});
  }
}

function reasonOf(error: unknown): string {
  if (error instanceof ConnectError) return `${Code[error.code]}: ${error.rawMessage}`;
  return error instanceof Error ? error.message : String(error);
}

/** Kills what still runs of this run's processes, and removes its directory. */
async function cleanUp({ run, process, filesystem }: Daemon): Promise<void> {
  const { processes } = await process.list({});
  const left = processes.filter(({ tag }) => tag?.startsWith(run.tag));
  for (const { pid } of left) await process.sendSignal({ process: byPid(pid), signal: 9 }).catch(() => {});
  await filesystem.remove({ path: run.directory });
  if (left.length > 0) throw new Error(`${left.length} processes still ran: ${left.map(({ tag }) => tag)}`);
}
