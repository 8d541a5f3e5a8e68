import { hookRequest } from '../../src/gateway/hooks/hook.ts';
import { failFreeze } from '../../src/gateway/leases/failed-freeze.ts';
import * as resumption from '../../src/gateway/leases/resumption.ts';
import {
  dueAt,
  expiryId,
  isReachable,
  type Outcome,
  outcomeOf,
  type Phase,
  type Sandbox,
} from '../../src/gateway/leases/sandbox.ts';
import * as real from '../../src/gateway/leases/transitions.ts';
import type { Model, Move } from './search.ts';

/*
 * One sandbox, its guest and its machine, and two gateways with a registry in common: every order of their steps. Records are
 * changed by the real transitions; between two changes each gateway does what `Expiration` does, with every result. Now is 0:
 * times are what is left until then.
 */

const NOW = 0;
/** Longer than a lease; the shorter, the fewer states. */
export const LIFE_MS = 6000;
const JUMP_MS = 6000;
/** By hooks, and remembered for ever. */
export const PAUSED = { byHook: true, keptMs: null };
const NAMES = ['a', 'b'] as const;

/** Where a gateway is in a step: it is to call the guest or the hook, waits for the hook, or knows how the step has ended. */
type At = 'call' | 'wait' | 'succeeded' | 'failed';

interface Task {
  readonly owner: string;
  /** As it was recorded by this gateway. */
  readonly sandbox: Sandbox;
  readonly at: At;
  /** How long its lease holds by its own clock, in ms. */
  readonly left: number;
}

interface Hook {
  readonly does: Outcome | 'resume';
  readonly is: 'running' | 'done' | 'failed';
}

/** What may still go wrong or be asked for. */
export interface Budget {
  readonly crashes: number;
  /** Refusals and lost answers of guests, failures of hooks. */
  readonly failures: number;
  /** Changes of the record whose answer is lost. */
  readonly lost: number;
  /** Of the registry's clock, forward and back. */
  readonly jumps: number;
  /** Operations of the platform and requests of clients. */
  readonly wishes: number;
}

export interface State {
  readonly record: Sandbox | null;
  readonly isFrozen: boolean;
  readonly machine: 'on' | 'paused' | 'removed';
  /** By the attempt. */
  readonly hooks: Readonly<Record<string, Hook>>;
  readonly tasks: readonly (Task | null)[];
  /** How often each gateway was started: that is part of its name as an owner. */
  readonly starts: readonly number[];
  readonly budget: Budget;
  /** Whether the registry's clock has jumped: then what was decided by it may not hold any more. */
  readonly hasJumped: boolean;
  /** What must not have happened. */
  readonly wrong: string | null;
}

/** Transitions by phase, as `Expiration` chooses them. */
type Ends = Readonly<Record<'succeeded' | 'failed', (sandbox: Sandbox) => Sandbox | null>>;

const OBSERVED = { freeze: null, collapse: null };
const STEPS: Partial<Record<Phase, Ends>> = {
  expiring: {
    succeeded: (sandbox) => real.commitExpiry(sandbox, OBSERVED, NOW),
    failed: (sandbox) => failFreeze(sandbox, NOW),
  },
  committed: {
    succeeded: (sandbox) => real.complete(sandbox, PAUSED, NOW),
    failed: (sandbox) => real.fail(sandbox, NOW),
  },
  thawing: { succeeded: real.resume, failed: (sandbox) => real.postpone(sandbox, NOW) },
  resuming: {
    succeeded: (sandbox) => resumption.endResume(sandbox, LIFE_MS / 1000, NOW),
    failed: (sandbox) => resumption.failResume(sandbox, PAUSED.keptMs, NOW),
  },
  removing: { succeeded: () => null, failed: (sandbox) => real.failRemoval(sandbox, NOW) },
};
const EVENTS = { committed: 'expire', resuming: 'resume', removing: 'kill' } as const;

type Next = readonly [name: string, to: State, isOptional?: 'optional'];

/** A sandbox whose time is up. */
export function firstRecord(onExpiry: Outcome, now: number): Sandbox {
  const at = { address: 'guest', ip: null, port: 1, accessToken: null };
  const registration = { id: 's', ...at, metadata: {}, envdVersion: '', owner: null, onExpiry };
  return { ...real.register(null, registration, 0, now), incarnation: 'i' };
}

export class ExpiryModel implements Model<State> {
  readonly initial: State;

  constructor(budget: Budget, onExpiry: Outcome) {
    this.initial = {
      ...{
        record: firstRecord(onExpiry, NOW),
        isFrozen: false,
        machine: 'on',
        hooks: {},
        tasks: [null, null],
      },
      ...{ starts: [1, 1], budget, hasJumped: false, wrong: null },
    };
  }

  moves(state: State): Move<State>[] {
    const next = [...ofTime(state), ...ofHooks(state), ...ofThePlatform(state)];
    for (const [index, task] of state.tasks.entries()) {
      next.push(...(task ? ofTask(state, index, task) : ofIdle(state, index)));
    }
    return next.map(([name, to, optional]) => ({ name, to: normal(to), isOptional: optional !== undefined }));
  }

  wrong(state: State): string | null {
    const { record, isFrozen, machine, hooks } = state;
    if (state.wrong !== null) return state.wrong;
    const running = Object.values(hooks).filter(({ is }) => is === 'running');
    if (running.length > 1) return 'two hooks of one sandbox run at a time';
    if (!record) return null;
    if (record.claim && record.claim.until > NOW + real.LEASE_MS + JUMP_MS)
      return 'a lease is held for too long';
    if (record.phase === 'paused' && machine !== 'paused')
      return `it counts as paused, and its machine is ${machine}`;
    if (!isReachable(record, NOW)) return null;
    if (isFrozen && !state.hasJumped) return 'requests are sent to a guest that is frozen';
    return machine === 'on' ? null : `requests are sent to a machine that is ${machine}`;
  }

  isSettled({ record, isFrozen, machine, tasks, hooks }: State): boolean {
    if (tasks.some(Boolean) || Object.values(hooks).some(({ is }) => is === 'running')) return false;
    if (!record) return true;
    if (record.phase === 'paused') return machine === 'paused';
    return isReachable(record, NOW) && !isFrozen && machine === 'on';
  }
}

/** Nothing of which it does not matter. */
function normal(state: State): State {
  const { record, tasks, hooks } = state;
  const current = record && expiryId(record);
  const isKept = (id: string) =>
    id === current ||
    hooks[id]?.is === 'running' ||
    tasks.some((task) => task && expiryId(task.sandbox) === id);
  const kept = Object.entries(hooks).filter(([id]) => isKept(id));
  const slim = tasks.map((task) => task && { ...task, sandbox: slimmed(task.sandbox) });
  return { ...state, tasks: slim, hooks: Object.fromEntries(kept) };
}

/** What a gateway uses of the record as it was. */
function slimmed(sandbox: Sandbox): Sandbox {
  const { pausedFrom } = sandbox;
  const times = { deadline: NOW, retryAt: NOW, failures: 0, claim: null };
  return { ...sandbox, ...times, ...(pausedFrom !== undefined && { pausedFrom: NOW }) };
}

const spend = (state: State, what: keyof Budget): State | null =>
  state.budget[what] > 0 ? { ...state, budget: { ...state.budget, [what]: state.budget[what] - 1 } } : null;

const withTask = (state: State, index: number, task: Task | null): State => ({
  ...state,
  tasks: state.tasks.map((each, other) => (other === index ? task : each)),
});

/** Time passes until the next of what is waited for; or the clock of the registry jumps. */
function* ofTime(state: State): Generator<Next> {
  const { record, tasks } = state;
  const times = [record?.deadline, record?.retryAt, record?.claim?.until, ...tasks.map((task) => task?.left)];
  const passes = Math.min(...times.filter((time) => time !== undefined && time > 0).map(Number));
  if (Number.isFinite(passes)) {
    const later = tasks.map((task) => task && { ...task, left: Math.max(0, task.left - passes) });
    yield [`${passes} ms pass`, { ...shifted(state, -passes), tasks: later }];
  }
  const spent = spend(state, 'jumps');
  if (!spent) return;
  const jumping = { ...spent, hasJumped: true };
  yield ['the clock jumps forward', shifted(jumping, -JUMP_MS), 'optional'];
  yield ['the clock jumps back', shifted(jumping, JUMP_MS), 'optional'];
}

function shifted(state: State, by: number): State {
  const { record } = state;
  if (!record) return state;
  const at = (time: number) => Math.max(0, time + by);
  const { deadline, retryAt, claim, pausedFrom } = record;
  const moved: Sandbox = {
    ...record,
    ...{ deadline: at(deadline), retryAt: at(retryAt), claim: claim && { ...claim, until: at(claim.until) } },
    ...(pausedFrom !== undefined && { pausedFrom: at(pausedFrom) }),
  };
  return { ...state, record: moved };
}

function* ofHooks(state: State): Generator<Next> {
  for (const [id, { does, is }] of Object.entries(state.hooks)) {
    if (is !== 'running') continue;
    const ended = (how: Hook['is'], from: State): State => ({
      ...from,
      hooks: { ...from.hooks, [id]: { does, is: how } },
    });
    const done = ended('done', state);
    // A snapshot is taken of a frozen guest.
    if (does === 'resume') yield [`hook ${id} succeeds`, { ...done, machine: 'on', isFrozen: true }];
    else
      yield [
        `hook ${id} succeeds`,
        { ...done, machine: does === 'pause' ? 'paused' : 'removed', isFrozen: false },
      ];
    const failing = spend(state, 'failures');
    if (failing) yield [`hook ${id} fails`, ended('failed', failing), 'optional'];
  }
}

/** What the platform and clients may want at any moment. */
export const WISHES: Readonly<Record<string, (sandbox: Sandbox, now: number) => Sandbox>> = {
  'a long time to live is set': (sandbox, now) => real.setTimeToLive(sandbox, LIFE_MS / 1000, now),
  'a time to live of 0 is set': (sandbox, now) => real.setTimeToLive(sandbox, 0, now),
  'it is extended': (sandbox, now) => real.extend(sandbox, LIFE_MS / 1000, now),
  'it is to be paused': real.pause,
  'it is to be removed': real.removeSandbox,
};

function* ofThePlatform(state: State): Generator<Next> {
  const { record } = state;
  const wishing = spend(state, 'wishes');
  if (!record || !wishing) return;
  for (const [name, wish] of Object.entries(WISHES)) {
    const wished: Sandbox | undefined = unlessRefused<Sandbox>(() => wish(record, NOW));
    if (wished !== undefined && wished !== record) yield [name, { ...wishing, record: wished }, 'optional'];
  }
}

/** Undefined: it was refused. */
function unlessRefused<T>(change: () => T): T | undefined {
  try {
    return change();
  } catch (error) {
    if (/cannot go from/.test(String(error))) throw error;
    return undefined;
  }
}

/** A gateway without a task claims what is due, or resumes for a request. */
function* ofIdle(state: State, index: number): Generator<Next> {
  const { record, starts } = state;
  if (!record) return;
  const owner = `${NAMES[index]}${starts[index]}`;
  const begin = (from: State, sandbox: Sandbox): State => {
    const task: Task = { owner, sandbox, at: 'call', left: real.LEASE_MS };
    return withTask({ ...from, record: sandbox }, index, task);
  };
  const acquired = dueAt(record) <= NOW ? real.acquire(record, owner, NOW) : null;
  if (acquired) yield [`${NAMES[index]} claims`, begin(state, acquired)];
  const wishing = spend(state, 'wishes');
  if (record.phase !== 'paused' || !wishing) return;
  const resuming = resumption.beginResume(record, owner, NOW);
  if (resuming !== record) yield [`${NAMES[index]} is asked to resume`, begin(wishing, resuming), 'optional'];
}

function* ofTask(state: State, index: number, task: Task): Generator<Next> {
  const name = NAMES[index];
  const crashing = spend(state, 'crashes');
  const starts = state.starts.map((count, other) => (other === index ? count + 1 : count));
  if (crashing) yield [`${name} crashes`, withTask({ ...crashing, starts }, index, null), 'optional'];
  yield* ofLease(state, index, task);
  if (task.at === 'call') yield* ofCall(state, index, task);
  else if (task.at === 'wait') yield* ofWait(state, index, task);
  else yield* ofRecord(state, index, task, task.at);
}

function* ofLease(state: State, index: number, task: Task): Generator<Next> {
  const { record } = state;
  const name = NAMES[index];
  if (!record?.claim) return;
  const isMine = record.claim.owner === task.owner && record.expiries === task.sandbox.expiries;
  if (record.claim.owner !== task.owner)
    yield [`${name} sees that its claim is lost`, withTask(state, index, null)];
  const renewed = isMine ? real.renew(record, task.owner, NOW) : record;
  if (renewed.claim?.until === record.claim.until && task.left === real.LEASE_MS) return;
  if (isMine)
    yield [
      `${name} renews`,
      withTask({ ...state, record: renewed }, index, { ...task, left: real.LEASE_MS }),
    ];
}

/** It calls the guest or starts the hook, unless its lease may have lapsed. */
function* ofCall(state: State, index: number, task: Task): Generator<Next> {
  const name = NAMES[index];
  const { sandbox, left } = task;
  if (left === 0) return yield [`${name} gives up`, withTask(state, index, null)];
  const at = (from: State, how: At): State => withTask(from, index, { ...task, at: how });
  if (sandbox.phase in EVENTS) return yield [`${name} calls the hook`, at(startHook(state, sandbox), 'wait')];
  const isFreeze = sandbox.phase === 'expiring';
  const what = isFreeze ? 'freeze' : 'thaw';
  const mayBeSilent = outcomeOf(sandbox) === 'remove' || sandbox.isResumed;
  const unanswered: At = isFreeze && mayBeSilent ? 'succeeded' : 'failed';
  const done = { ...state, isFrozen: isFreeze };
  if (state.machine !== 'on') return yield [`the ${what} by ${name} is not answered`, at(state, unanswered)];
  yield [`the ${what} by ${name} is done`, at(done, 'succeeded')];
  const failing = spend(state, 'failures');
  if (!failing) return;
  yield [`the ${what} by ${name} is refused`, at(failing, 'failed'), 'optional'];
  yield [
    `the answer to the ${what} by ${name} is lost`,
    at({ ...failing, isFrozen: isFreeze }, unanswered),
    'optional',
  ];
}

/** Once for each attempt: a second call waits for the first one's run. */
function startHook(state: State, sandbox: Sandbox): State {
  const { record, hooks, isFrozen } = state;
  const event = EVENTS[sandbox.phase as keyof typeof EVENTS];
  const { expiryID, outcome } = hookRequest(event, { ...sandbox, deadline: NOW });
  const before = hooks[expiryID];
  if (before)
    return before.does === outcome ? state : { ...state, wrong: 'one attempt is told with two outcomes' };
  const started = { ...state, hooks: { ...hooks, [expiryID]: { does: outcome, is: 'running' as const } } };
  if (outcome === 'pause' && !isFrozen && !state.hasJumped)
    return { ...started, wrong: 'the hook pauses a guest that is not frozen' };
  const isEarly = event === 'expire' && record !== null && record.deadline > NOW && !state.hasJumped;
  return isEarly ? { ...started, wrong: 'the hook pauses before the deadline' } : started;
}

function* ofWait(state: State, index: number, task: Task): Generator<Next> {
  const hook = state.hooks[expiryId(task.sandbox)];
  if (!hook || hook.is === 'running') return;
  const at: At = hook.is === 'done' ? 'succeeded' : 'failed';
  yield [`${NAMES[index]} hears of its hook`, withTask(state, index, { ...task, at })];
}

/** It records the next phase if its claim still holds. */
function* ofRecord(state: State, index: number, task: Task, how: 'succeeded' | 'failed'): Generator<Next> {
  const { record } = state;
  const { sandbox, owner } = task;
  const name = NAMES[index];
  const isMine =
    record?.claim?.owner === owner && record.expiries === sandbox.expiries && record.phase === sandbox.phase;
  if (!isMine) {
    // Removed while it was frozen: no other gateway thaws it.
    const isThawed = record === null && !(sandbox.phase in EVENTS && how === 'succeeded');
    const to = isThawed ? { ...state, isFrozen: false } : state;
    return yield [`${name} is overtaken`, withTask(to, index, null)];
  }
  const next = STEPS[sandbox.phase]?.[how](record) ?? null;
  const recorded = { ...state, record: next };
  const goesOn = next?.claim ? { ...task, sandbox: next, at: 'call' as const } : null;
  yield [
    `${name} records that it ${how === 'failed' ? 'failed' : 'is done'}`,
    withTask(recorded, index, goesOn),
  ];
  const losing = spend(recorded, 'lost');
  if (losing)
    yield [`the answer to the record of ${name} is lost`, withTask(losing, index, null), 'optional'];
}
