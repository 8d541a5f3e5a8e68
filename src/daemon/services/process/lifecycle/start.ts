import { EnvdError } from '../../../../base/errors.ts';
import { debug } from '../../../../base/program/debug.ts';
import type { Unread } from '../../../../base/unread.ts';
import type { Lanes } from '../../../linux/lanes/lanes.ts';
import { resolvePath } from '../../../linux/paths/paths.ts';
import { assertAnswers, findExecutable, mountsMayHang } from '../../../linux/processes/executable.ts';
import type { PipePoller } from '../../../linux/processes/pipe-ends.ts';
import type { TerminalSize } from '../../../linux/processes/pty.ts';
import type { Launch, Spawned } from '../../../linux/processes/spawn.ts';
import type { User } from '../../../linux/system/users.ts';
import type { Guest } from '../../guest/guest.ts';
import type { Leaf } from '../cgroups/leaf.ts';
import { type Channels, openPipes, openTerminal } from '../output/channels.ts';
import type { OutputStream } from '../output/events.ts';
import type { History } from '../output/history.ts';
import { Output } from '../output/output.ts';
import type { OnOutput, OutputSource } from '../output/pipe-output.ts';
import { buildEnvironment, IN_TERMINAL } from './environment.ts';
import { ManagedProcess } from './process.ts';
import { keptOf, type ProcessConfig } from './process-config.ts';

/** What a client asks to start. */
export interface StartRequest {
  readonly config: ProcessConfig;
  readonly user: User;
  readonly tag: string | null;
  /** Null for pipes. */
  readonly terminal: TerminalSize | null;
  /** False makes stdin /dev/null. Without effect on a terminal. */
  readonly stdin: boolean;
  /** Idempotency key of the client, or null; see `ProcessTable.start`. */
  readonly startId: string | null;
  /** Throws when nobody waits for the start any more: a search for the program ends then. */
  readonly throwIfAborted?: () => void;
}

/** A complete launch except for its cgroup. */
export type Plan = Omit<Launch, 'cgroup' | 'limitMs'>;

/** Resolves a request to program, arguments, environment and directory. Throws the first error. */
export async function planLaunch(
  request: StartRequest,
  guest: Guest,
  daemonPath: string,
  lanes: Lanes,
): Promise<Plan> {
  const { config, user, throwIfAborted } = request;
  if (config.command === '') throw new EnvdError('invalid_argument', 'cmd is empty');
  const cwd = resolvePath(config.cwd ?? '', user, guest.defaultWorkdir);
  const platform = request.terminal ? { ...IN_TERMINAL, ...guest.environment } : guest.environment;
  const environment = buildEnvironment(daemonPath, user, platform, config.environment, cwd);
  assertNoNulBytes([config.command]);
  assertNoNulBytes(config.args);
  assertVariables(environment);
  const file = await findExecutable(config.command, environment.PATH, cwd, user, lanes, throwIfAborted);
  if (mountsMayHang()) {
    const paths = config.command.includes('/') ? [cwd, file] : [cwd];
    await Promise.all(paths.map((path) => assertAnswers(path, lanes)));
  }
  return { file, args: [config.command, ...config.args], environment, cwd, user };
}

/** What the output of a process passes through besides its readers. */
export interface OutputPath {
  readonly poller: PipePoller;
  /** Keeps the last output for clients that reconnect. */
  readonly history: History;
  /** Bounds what waits for slow readers. */
  readonly unread: Unread;
  /** Counters of bytes, by stream. */
  readonly written: Record<OutputStream, number>;
}

/** Starts a planned process within `limitMs`, in `leaf` unless that is null. */
export async function launchProcess(
  request: StartRequest,
  plan: Plan,
  leaf: Leaf | null,
  limitMs: number,
  { poller, history, unread, written }: OutputPath,
): Promise<ManagedProcess> {
  let opened: Channels | null = null;
  const output = new Output((paused) => opened?.setPaused(paused), history, unread);
  const { process: spawned, channels } = await open(
    request,
    { ...plan, cgroup: leaf?.path ?? null, limitMs },
    { poller, process: history.process, totals: output.totals },
    (stream, bytes) => {
      written[stream] += bytes.length;
      output.write(stream, bytes);
    },
  );
  opened = channels;
  debug('process', 'launched', () => ({ pid: spawned.pid, inCgroup: leaf !== null }));
  const { tag, startId } = request;
  const config = keptOf(request.config, startId !== null);
  return new ManagedProcess({ config, tag, spawned, channels, output, leaf });
}

function open(
  request: StartRequest,
  launch: Launch,
  source: OutputSource,
  onOutput: OnOutput,
): Promise<{ process: Spawned; channels: Channels }> {
  if (request.terminal) return openTerminal(launch, request.terminal, source, onOutput);
  return openPipes(launch, request.stdin, source, onOutput);
}

function assertNoNulBytes(texts: readonly string[]): void {
  if (texts.some((text) => text.includes('\0')))
    throw new EnvdError('invalid_argument', 'cmd, args and envs cannot contain NUL bytes');
}

function assertVariables(environment: Readonly<Record<string, string>>): void {
  const names = Object.keys(environment);
  assertNoNulBytes(names);
  assertNoNulBytes(Object.values(environment));
  const bad = names.find((name) => name === '' || name.includes('='));
  if (bad === undefined) return;
  const text = `invalid name of an environment variable: '${bad}': it must not be empty or contain '='`;
  throw new EnvdError('invalid_argument', text);
}

/** The cgroup that the process goes to. */
export function kindOf({ terminal }: StartRequest): 'user' | 'ptys' {
  return terminal ? 'ptys' : 'user';
}
