import type { Connection } from '../../connection/connection.ts';
import { askState, type DaemonState } from '../../connection/daemon-state.ts';
import { Failure } from '../../output/failure.ts';
import type { Call } from '../spec/call.ts';
import { defineCommand } from '../spec/command.ts';

/**
 * A larger difference of the clocks is reported, in milliseconds. The `Date` header has whole seconds, so a smaller one is
 * not certain.
 */
const CLOCK_TOLERANCE_MS = 2_000;

/** The result of one check. */
interface Check {
  readonly name: string;
  readonly status: 'ok' | 'warning' | 'failed';
  readonly text: string;
}

export const doctorCommand = defineCommand<object>({
  name: 'doctor',
  summary: 'Tell what is reachable, which version it is, what it can, and whose clock is off',
  examples: ['envctl doctor'],
  arguments: [],
  options: [],
  json: '{"target","ok","checks":[{"name","status":"ok"|"warning"|"failed","text"}]}',
  async run(call) {
    const connection = await call.connection();
    const { name } = connection.target;
    const [checks, failure] = await examine(connection);
    const ok = failure === null;
    await call.output.result({ target: name, ok, checks }, () => show(call, name, checks));
    return failure?.exitCode ?? 0;
  },
});

/** Makes all checks. Also returns the first failure, or null. */
async function examine(connection: Connection): Promise<readonly [Check[], Failure | null]> {
  const checks: Check[] = [];
  try {
    await connection.http.text({ path: '/health' });
    checks.push({ name: 'reachable', status: 'ok', text: 'it answers' });
  } catch (error) {
    return [[...checks, failed('reachable', error)], asFailure(error)];
  }
  let state: DaemonState;
  try {
    state = await askState(connection);
    await connection.call((options) => connection.processes.list({}, options));
    checks.push({ name: 'access', status: 'ok', text: 'the token is accepted, or none is needed' });
  } catch (error) {
    return [[...checks, failed('access', error)], asFailure(error)];
  }
  const { target } = connection;
  if (target.user !== null) {
    try {
      await connection.call((options) => connection.files.stat({ path: '~' }, options));
      checks.push({ name: 'user', status: 'ok', text: target.user });
    } catch (error) {
      return [[...checks, failed('user', error)], asFailure(error)];
    }
  }
  return [[...checks, ...checksOf(state)], null];
}

function checksOf(state: DaemonState): Check[] {
  const { version, interface: level, since, frozen, abilities, clockAheadMs, roundTripMs } = state;
  const isFrozen = frozen?.workload || frozen?.filesystem;
  const clock = clockAheadMs === null ? null : Math.abs(clockAheadMs);
  const direction = (clockAheadMs ?? 0) > 0 ? 'behind' : 'ahead';
  return [
    { name: 'round trip', status: 'ok', text: `${roundTripMs.toFixed(1)} ms` },
    {
      name: 'version',
      status: 'ok',
      text:
        version === null
          ? 'not told; this is not envd'
          : `envd ${version}, interface ${level}, since ${since}`,
    },
    ...(frozen
      ? [
          {
            name: 'frozen',
            status: isFrozen ? 'warning' : 'ok',
            text: isFrozen ? 'yes: `envctl thaw` ends it' : 'no',
          } as const,
        ]
      : []),
    ...(clock === null
      ? []
      : [
          clock > CLOCK_TOLERANCE_MS
            ? ({
                name: 'clock',
                status: 'warning',
                text: `the daemon's is ${(clock / 1000).toFixed(0)} s ${direction} of this machine's: \`envctl init --now\` sets it`,
              } as const)
            : ({ name: 'clock', status: 'ok', text: 'within 2 s of this machine' } as const),
        ]),
    ...Object.entries(abilities).map(
      ([name, { available, reason }]): Check => ({
        name: `can: ${name}`,
        status: available ? 'ok' : 'warning',
        text: available ? 'yes' : `no: ${reason ?? 'no reason is told'}`,
      }),
    ),
  ];
}

function failed(name: string, error: unknown): Check {
  return { name, status: 'failed', text: (error as Error).message };
}

function asFailure(error: unknown): Failure {
  return error instanceof Failure ? error : new Failure('failed', String(error));
}

async function show({ output }: Call, target: string, checks: readonly Check[]): Promise<void> {
  const styles = { ok: 'green', warning: 'yellow', failed: 'red' } as const;
  await output.line({ style: 'bold', text: target });
  const width = Math.max(...checks.map(({ name }) => name.length));
  for (const { name, status, text } of checks)
    await output.line({ style: styles[status], text: status.padEnd(8) }, `${name.padEnd(width)}  ${text}`);
}
