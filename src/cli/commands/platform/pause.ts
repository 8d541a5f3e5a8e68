import { parseCount } from '../../../base/program/settings.ts';
import type { Connection } from '../../connection/connection.ts';
import type { Call } from '../spec/call.ts';
import { defineCommand } from '../spec/command.ts';
import type { OptionSpec } from '../spec/description.ts';

interface FreezeOptions {
  readonly mode?: string;
  readonly maxWaitMs?: number;
  readonly maxCgroups?: number;
  readonly filesystem?: boolean;
}

const DEFAULT_WAIT_MS = 1000;

const FREEZE_OPTIONS: readonly OptionSpec[] = [
  {
    flags: '--mode <mode>',
    help: 'legacy: what clients have started; hierarchy: all of the guest but what a resume needs',
    choices: ['legacy', 'hierarchy'],
  },
  {
    flags: '--max-wait-ms <number>',
    help: `how long to wait until all is frozen; default: ${DEFAULT_WAIT_MS}`,
    parse: parseCount,
  },
  { flags: '--max-cgroups <number>', help: 'how many cgroups to visit at most', parse: parseCount },
];

const FREEZE_SHAPE =
  '{"mode","visited","allowlisted","truncated","preFrozen","requested","frozen","notFrozen","failed","unobservable","sweepMs","waitMs"}';
const COLLAPSE_SHAPE = '{"regions","chunks","collapsed","alreadyHuge","skipped","elapsedMs"}';

export const freezeCommand = defineCommand<FreezeOptions>({
  name: 'freeze',
  summary: 'Stop the workload, as before a pause',
  examples: ['envctl freeze --mode hierarchy'],
  details: ['The daemon thaws it after ten minutes, if `envctl thaw` has not done so before.'],
  arguments: [],
  options: [...FREEZE_OPTIONS, { flags: '--filesystem', help: 'freeze the root file system instead' }],
  json: FREEZE_SHAPE,
  async run(call, options) {
    const connection = await call.connection();
    if (options.filesystem) {
      await post(connection, '/fsfreeze');
      await call.output.result({ filesystem: 'frozen' }, async () => {});
    } else await show(call, await freeze(connection, options));
    return 0;
  },
});

export const thawCommand = defineCommand<{ readonly filesystem?: boolean }>({
  name: 'thaw',
  summary: 'Let the workload run again',
  examples: ['envctl thaw'],
  arguments: [],
  options: [{ flags: '--filesystem', help: 'thaw the root file system instead' }],
  json: '{"thawed":"workload"|"filesystem"}',
  async run(call, { filesystem }) {
    const connection = await call.connection();
    await post(connection, filesystem ? '/fsthaw' : '/unfreeze');
    await call.output.result({ thawed: filesystem ? 'filesystem' : 'workload' }, async () => {});
    return 0;
  },
});

export const collapseCommand = defineCommand<object>({
  name: 'collapse',
  summary: "Collapse the daemon's memory into huge pages, as before a pause",
  examples: ['envctl collapse'],
  arguments: [],
  options: [],
  json: COLLAPSE_SHAPE,
  async run(call) {
    await show(call, await post(await call.connection(), '/collapse'));
    return 0;
  },
});

export const pauseTestCommand = defineCommand<FreezeOptions>({
  name: 'pause-test',
  summary: 'Freeze, collapse and thaw, and tell how long each takes',
  examples: ['envctl pause-test'],
  details: ['Whatever fails, the workload is thawed at the end.'],
  arguments: [],
  options: FREEZE_OPTIONS,
  json: `{"freeze":${FREEZE_SHAPE},"collapse":${COLLAPSE_SHAPE},"milliseconds":{"freeze","collapse","thaw"}}`,
  async run(call, options) {
    const connection = await call.connection();
    const [freezeMs, frozen] = await timed(() => freeze(connection, options));
    let thawed: readonly [number, unknown] = [0, null];
    let collapsed: readonly [number, unknown];
    try {
      collapsed = await timed(() => post(connection, '/collapse'));
    } finally {
      thawed = await timed(() => post(connection, '/unfreeze'));
    }
    const milliseconds = { freeze: freezeMs, collapse: collapsed[0], thaw: thawed[0] };
    await call.output.result({ freeze: frozen, collapse: collapsed[1], milliseconds }, async () => {
      const notes = {
        freeze: isNone(frozen, ['frozen', 'preFrozen']) ? '  nothing was frozen' : '',
        collapse: isNone(collapsed[1], ['collapsed', 'alreadyHuge']) ? '  nothing was collapsed' : '',
        thaw: '',
      };
      for (const name of ['freeze', 'collapse', 'thaw'] as const)
        await call.output.line(
          `${name.padEnd(8)} ${milliseconds[name].toFixed(1).padStart(8)} ms${notes[name]}`,
        );
      const { notFrozen = 0, failed = 0 } = frozen as { notFrozen?: number; failed?: number };
      if (Number(notFrozen) + Number(failed) > 0)
        call.output.warn(`${notFrozen} cgroups were not frozen in time, ${failed} could not be`);
    });
    return 0;
  },
});

/** Returns whether an answer counts none of these. */
function isNone(answer: unknown, names: readonly string[]): boolean {
  const counts = (answer ?? {}) as Readonly<Record<string, unknown>>;
  return names.every((name) => !counts[name]);
}

async function freeze(
  connection: Connection,
  { mode, maxWaitMs, maxCgroups }: FreezeOptions,
): Promise<unknown> {
  return post(connection, '/freeze', {
    mode,
    maxWaitMs: String(maxWaitMs ?? DEFAULT_WAIT_MS),
    maxCgroups: maxCgroups === undefined ? undefined : String(maxCgroups),
  });
}

async function post(
  { http }: Connection,
  path: string,
  query: Readonly<Record<string, string | undefined>> = {},
): Promise<unknown> {
  return http.json({ method: 'POST', path, query });
}

async function timed<T>(work: () => Promise<T>): Promise<readonly [milliseconds: number, result: T]> {
  const started = performance.now();
  const result = await work();
  return [Number((performance.now() - started).toFixed(2)), result];
}

/** Prints each member of an object on a line of its own. */
async function show({ output }: Call, value: unknown): Promise<void> {
  await output.result(value, async () => {
    for (const [name, member] of Object.entries(value ?? {}))
      await output.line(`${name.padEnd(14)} ${String(member)}`);
  });
}
