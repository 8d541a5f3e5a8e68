import { onAbort } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';
import { monotonicMs } from '../../../base/monotonic.ts';
import type { CallScope } from '../../http/admission/call-scope.ts';
import type { User } from '../../linux/system/users.ts';
import type { EndedProcess } from '../../services/process/lifecycle/ended.ts';
import { ManagedProcess } from '../../services/process/lifecycle/process.ts';
import { type ProcessConfig, requireExecutable } from '../../services/process/lifecycle/process-config.ts';
import type { ProcessLimits } from '../../services/process/limits/limits.ts';
import type { EndEvent } from '../../services/process/output/events.ts';
import type { Reader } from '../../services/process/output/reader.ts';
import type { ProcessTable } from '../../services/process/table.ts';
import { HeadAndTail } from './head-and-tail.ts';

/** A command that nobody waits for is killed again at this interval, in milliseconds, until that succeeds. */
const RETRY_MS = 100;

/** Describes a command that runs to its end. */
export interface ExecCommand {
  readonly config: ProcessConfig;
  readonly user: User;
  /** The standard input. If it is null, the program reads an end of file at once. */
  readonly input: Buffer | null;
  /** After this time the command is killed with everything below it; null means no limit. */
  readonly timeoutMs: number | null;
  readonly limits: ProcessLimits | null;
  /** This many bytes of the output of each stream are kept. */
  readonly maxOutputBytes: number;
}

export interface Execution {
  readonly end: EndEvent;
  readonly stdout: HeadAndTail;
  readonly stderr: HeadAndTail;
  readonly durationMs: number;
}

/**
 * Runs a command as Start does, and keeps its output. If the call is aborted before the end or fails, the command is killed
 * with everything below it. Throws what `ProcessTable.start` throws, and the reason of the signal when the call is aborted.
 */
export async function execute(
  command: ExecCommand,
  processes: ProcessTable,
  call: CallScope,
): Promise<Execution> {
  const { config, user, input, timeoutMs, limits, maxOutputBytes } = command;
  requireExecutable(config);
  const started = monotonicMs();
  const request = { config, user, tag: null, terminal: null, stdin: input !== null, startId: null };
  const throwIfAborted = () => call.throwIfAborted();
  using feed = await processes.start({ ...request, ...(limits && { limits }), throwIfAborted }, timeoutMs);
  const process = processes.findRetained({ pid: feed.pid });
  call.subject = { pid: feed.pid };
  const kept = { stdout: new HeadAndTail(maxOutputBytes), stderr: new HeadAndTail(maxOutputBytes) };
  const stopWatching = onAbort(call.signal, () => killTree(process));
  try {
    if (input !== null) void writeInput(process, input, call.signal);
    await call.race(collect(feed, kept, () => call.hold((input?.length ?? 0) + capacityOf(kept))));
    const { end } = process instanceof ManagedProcess ? await call.race(process.ended) : process;
    return { ...kept, end, durationMs: Math.round(monotonicMs() - started) };
  } catch (error) {
    killTree(process);
    throw error;
  } finally {
    stopWatching();
  }
}

type Kept = Readonly<Record<'stdout' | 'stderr', HeadAndTail>>;

const capacityOf = ({ stdout, stderr }: Kept) => stdout.capacity + stderr.capacity;

/** Reads all output. Calls `grown` when more memory is kept. */
async function collect(feed: Reader, kept: Kept, grown: () => void): Promise<void> {
  let capacity = -1;
  try {
    for (let events = await feed.next(); events !== null; events = await feed.next()) {
      for (const event of events)
        if (event.type === 'output' && event.stream !== 'pty') kept[event.stream].add(event.bytes);
      if (capacityOf(kept) !== capacity) grown();
      capacity = capacityOf(kept);
    }
  } catch (error) {
    // A reader gets this error in place of the end of a process that its deadline has killed. The end itself says the same.
    if (!(error instanceof EnvdError) || error.kind !== 'deadline_exceeded') throw error;
  }
}

/**
 * Writes the whole input and closes it. Ignores the errors of a program that does not read its input or ends before, because
 * it may do so.
 */
async function writeInput(
  process: ManagedProcess | EndedProcess,
  input: Buffer,
  signal: AbortSignal,
): Promise<void> {
  if (!(process instanceof ManagedProcess)) return;
  try {
    await process.write('stdin', input, signal);
    process.closeStdin();
  } catch (error) {
    if (!signal.aborted && !(error instanceof EnvdError)) throw error;
  }
}

function killTree(process: ManagedProcess | EndedProcess): void {
  if (process instanceof ManagedProcess && !process.kill()) setTimeout(killTree, RETRY_MS, process).unref();
}
