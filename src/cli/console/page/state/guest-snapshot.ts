import { counted } from '../../../output/formats.ts';
import type {
  EndMessage,
  HealthMessage,
  ListenerMessage,
  MetricsMessage,
  PortsMessage,
  ProcessMessage,
} from '../wire/messages.ts';
import { type Obstacle, obstacleText } from './obstacle.ts';

/** What a guest says of itself; empty where its files do not. */
export interface GuestSystem {
  readonly hostName: string;
  readonly name: string;
  readonly bootedAt: string | undefined;
}

/** What a look at a daemon has found. */
export interface GuestSnapshot {
  readonly reach: 'connecting' | 'reachable' | 'lost' | Obstacle;
  /** Why it is lost. */
  readonly message: string;
  readonly health: HealthMessage | null;
  readonly metrics: MetricsMessage | null;
  readonly processes: readonly ProcessMessage[];
  readonly ports: PortsMessage | null;
  /** null: the daemon does not tell. */
  readonly listeners: readonly ListenerMessage[] | null;
}

/** Something that has happened in a guest. */
export interface Happening {
  readonly kind: 'start' | 'end' | 'freeze' | 'limit' | 'port' | 'daemon';
  readonly text: string;
  /** A port that a link opens. */
  readonly port?: number;
}

/** The command of a process on one line. */
export function commandOf({ config, pid }: ProcessMessage): string {
  const words = [config?.cmd ?? '', ...(config?.args ?? [])];
  return words.join(' ').trim() || `process ${pid}`;
}

/** A process for people: its command, with its pid and tag. */
export function titleOf(process: ProcessMessage): string {
  const { pid, tag } = process;
  const command = commandOf(process);
  const short = command.length > 80 ? `${command.slice(0, 80)}…` : command;
  return `${short} (${pid}${tag === undefined ? '' : `, ${tag}`})`;
}

/** What has happened between two looks, except how processes have ended, which takes another call. */
export function happeningsBetween(before: GuestSnapshot, now: GuestSnapshot): Happening[] {
  if (before.reach === 'connecting' && now.reach === 'reachable') return [];
  return [
    ...aboutDaemon(before, now),
    ...aboutFreezes(before, now),
    ...aboutStarts(before, now),
    ...aboutPorts(before, now),
  ];
}

/** The processes that have ended between two looks. */
export function endedBetween(before: GuestSnapshot, now: GuestSnapshot): ProcessMessage[] {
  if (now.reach !== 'reachable') return [];
  const pids = new Set(now.processes.map(({ pid }) => pid));
  return before.processes.filter(({ pid }) => !pids.has(pid));
}

/** The end of a process; null: the daemon does not say how it ended. */
export function endHappening(process: ProcessMessage, end: EndMessage | null): Happening {
  const title = titleOf(process);
  if (end === null) return { kind: 'end', text: `${title} has ended` };
  if (end.reason === 'END_REASON_OUT_OF_MEMORY')
    return { kind: 'limit', text: `${title} was killed because memory ran out` };
  if (end.reason === 'END_REASON_DEADLINE')
    return { kind: 'limit', text: `${title} was killed at its time limit` };
  return { kind: 'end', text: `${title} has ended: ${endStatusOf(end)}` };
}

/** How a process has ended, for people. */
export function endStatusOf({ status, exitCode = 0, reason }: EndMessage): string {
  if (reason === 'END_REASON_OUT_OF_MEMORY') return 'killed because memory ran out';
  return status ?? `exit status ${exitCode}`;
}

function aboutDaemon(before: GuestSnapshot, now: GuestSnapshot): Happening[] {
  const tell = (text: string): Happening[] => [{ kind: 'daemon', text }];
  if (now.reach !== before.reach) {
    if (now.reach === 'lost') return tell(`the daemon does not answer: ${now.message}`);
    if (now.reach !== 'reachable' && now.reach !== 'connecting') return tell(obstacleText(now.reach));
  }
  if (now.reach !== 'reachable') return [];
  const [was, is] = [before.health, now.health];
  if (was?.since !== undefined && is?.since !== undefined && was.since !== is.since) {
    const from = was.version === is.version ? '' : ` in place of ${was.version}`;
    return tell(`the daemon was started anew: envd ${is.version}${from}`);
  }
  return before.reach === 'reachable' ? [] : tell('the daemon answers again');
}

function aboutFreezes({ health: was }: GuestSnapshot, { health: is }: GuestSnapshot): Happening[] {
  const happenings: Happening[] = [];
  for (const part of ['workload', 'filesystem'] as const) {
    const [before, now] = [was?.frozen?.[part], is?.frozen?.[part]];
    if (before === undefined || now === undefined || before === now) continue;
    const name = part === 'workload' ? 'the workload' : 'the root file system';
    happenings.push({ kind: 'freeze', text: `${name} ${now ? 'is frozen' : 'runs again'}` });
  }
  return happenings;
}

function aboutStarts(before: GuestSnapshot, now: GuestSnapshot): Happening[] {
  if (now.reach !== 'reachable') return [];
  const pids = new Set(before.processes.map(({ pid }) => pid));
  return now.processes
    .filter(({ pid }) => !pids.has(pid))
    .map((process) => ({ kind: 'start', text: `${titleOf(process)} was started` }));
}

function aboutPorts(was: GuestSnapshot, is: GuestSnapshot): Happening[] {
  const [before, now] =
    was.listeners && is.listeners ? [holdersIn(was), holdersIn(is)] : [forwardsIn(was), forwardsIn(is)];
  if (!before || !now) return [];
  return [
    ...[...now]
      .filter(([port]) => !before.has(port))
      .map(([port, holder]): Happening => ({ kind: 'port', text: `${holder} at port ${port}`, port })),
    ...[...before.keys()]
      .filter((port) => !now.has(port))
      .map((port): Happening => ({ kind: 'port', text: `port ${port} has gone` })),
  ];
}

/** What listens, by port. */
type Holders = ReadonlyMap<number, string>;

function holdersIn({ listeners }: GuestSnapshot): Holders {
  return new Map(listeners?.map(({ port, command }) => [port, `${command ?? 'an unknown process'} listens`]));
}

function forwardsIn({ ports }: GuestSnapshot): Holders | null {
  return ports && new Map((ports.ports ?? []).map(({ port }) => [port, 'a server listens']));
}

/** How long something has lasted, for people: `3 days`, `2 hours`. */
export function ageOf(since: string | undefined, now = Date.now()): string {
  const seconds = Math.max(0, Math.floor((now - Date.parse(since ?? '')) / 1000));
  return Number.isNaN(seconds) ? '-' : durationOf(seconds);
}

/** A number of seconds for people: `3 days`, `2 hours`. */
export function durationOf(exact: number): string {
  const seconds = Math.floor(exact);
  if (seconds >= 2 * 86_400) return counted(Math.floor(seconds / 86_400), 'day');
  if (seconds >= 2 * 3600) return counted(Math.floor(seconds / 3600), 'hour');
  return seconds >= 120 ? counted(Math.floor(seconds / 60), 'minute') : counted(seconds, 'second');
}
