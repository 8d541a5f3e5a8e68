import { Code, ConnectError } from '@connectrpc/connect';
import type { Case, Need, Section } from './cases.ts';
import { TestedDaemon } from './daemon.ts';
import { lookAround } from './guest.ts';
import { NotOffered, NotRun } from './not-run.ts';
import type { GuestFacts, Run } from './run.ts';
import { byPid } from './transcript.ts';

/** What became of a case. */
export interface CaseResult {
  /** The number of the section. */
  readonly section: string;
  readonly title: string;
  readonly name: string;
  readonly outcome: 'passed' | 'failed' | 'not run' | 'not offered';
  readonly milliseconds: number;
  /** Why it has not passed; null if it has. */
  readonly reason: string | null;
}

/** The cases of a run. */
export interface CasePlan {
  readonly sections: readonly Section[];
  /** How long a case may take, in milliseconds. */
  readonly limitMs: number;
  /** When it aborts, the case that is under way is left, and no other is begun. */
  readonly stop: AbortSignal;
}

/** A case that does not end takes its connections with it. */
const CLEAN_UP_MS = 10_000;
/** The most of a reason that is told, in characters. */
const MOST_TEXT = 2000;

/**
 * Runs one case after the other, and tells what became of each. At the end, also after a stop, it ends what still runs, and removes
 * its directory; whoever does not take all results leaves them there.
 */
export async function* runCases(run: Run, plan: CasePlan): AsyncGenerator<CaseResult> {
  let guest: GuestFacts | null = null;
  const look = async (daemon: TestedDaemon) => {
    guest = await lookAround(daemon);
  };
  const first = { name: 'a file is read, and a program run: who is there', needs: [], check: look };
  yield { section: '0', title: 'The guest', ...(await runCase(run, null, first, 'guest', plan)) };
  let count = 0;
  for (const { number, title, cases } of guest ? plan.sections : [])
    for (const each of cases) {
      if (plan.stop.aborted) break;
      count += 1;
      yield { section: number, title, ...(await runCase(run, guest, each, `case-${count}`, plan)) };
    }
  const { aborted: isStopped } = plan.stop;
  const last = {
    name: 'nothing is left behind',
    needs: [],
    check: (daemon: TestedDaemon) => cleanUp(daemon, isStopped),
  };
  const atLast = { ...plan, stop: new AbortController().signal };
  yield { section: '9', title: 'Afterwards', ...(await runCase(run, guest, last, 'end', atLast)) };
}

async function runCase(
  run: Run,
  guest: GuestFacts | null,
  { name, needs, check }: Case,
  directory: string,
  { limitMs, stop }: CasePlan,
): Promise<Omit<CaseResult, 'section' | 'title'>> {
  const missing = needs.map((need) => reasonAgainst(need, run, guest)).find((reason) => reason !== null);
  if (missing) return { name, outcome: 'not run', milliseconds: 0, reason: missing };
  const started = performance.now();
  const daemon = new TestedDaemon(run, guest, directory);
  const error = await within(limitMs, check(daemon), stop).then(
    () => null,
    (reason: unknown) => reason,
  );
  await within(CLEAN_UP_MS, daemon[Symbol.asyncDispose]()).catch(() => daemon.connections[Symbol.dispose]());
  const milliseconds = Math.round(performance.now() - started);
  const reason = error === null ? null : reasonOf(error);
  return { name, outcome: outcomeOf(error), milliseconds, reason };
}

function outcomeOf(error: unknown): CaseResult['outcome'] {
  if (error === null) return 'passed';
  if (error instanceof NotOffered) return 'not offered';
  return error instanceof NotRun ? 'not run' : 'failed';
}

function reasonAgainst(need: Need, { token, options }: Run, guest: GuestFacts | null): string | null {
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

/** Fails after the limit, or when `stop` aborts; the work is not ended by that. */
async function within<T>(limitMs: number, work: Promise<T>, stop?: AbortSignal): Promise<T> {
  const over = Promise.withResolvers<never>();
  const timer = setTimeout(
    () => over.reject(new Error(`it has not ended within ${limitMs / 1000} s`)),
    limitMs,
  );
  const onStop = () => over.reject(new NotRun('the run was interrupted'));
  if (stop?.aborted) onStop();
  stop?.addEventListener('abort', onStop);
  try {
    return await Promise.race([work, over.promise]);
  } finally {
    clearTimeout(timer);
    stop?.removeEventListener('abort', onStop);
    work.catch(() => {});
  }
}

function reasonOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  const told = error instanceof ConnectError ? `${Code[error.code]}: ${error.rawMessage}` : text;
  return told.length > MOST_TEXT ? `${told.slice(0, MOST_TEXT)}…` : told;
}

/** Kills what still runs of this run's processes, which only a case that was stopped may leave, and removes its directory. */
async function cleanUp({ run, process, filesystem }: TestedDaemon, mayLeave: boolean): Promise<void> {
  const { processes } = await process.list({});
  const left = processes.filter(({ tag }) => tag?.startsWith(run.tag));
  for (const { pid } of left) await process.sendSignal({ process: byPid(pid), signal: 9 }).catch(() => {});
  await filesystem.remove({ path: run.directory });
  if (left.length > 0 && !mayLeave)
    throw new Error(`${left.length} processes still ran: ${left.map(({ tag }) => tag)}`);
}
