import type { HttpClient } from '../../connection/http.ts';
import { Failure, usageError } from '../../output/failure.ts';
import { formatSeconds, formatTime } from '../../output/formats.ts';
import type { Call } from '../spec/call.ts';
import { type CommandOptions, defineCommand } from '../spec/command.ts';
import type { ArgumentSpec, OptionSpec } from '../spec/description.ts';
import { parseDuration } from '../spec/parsers.ts';

/** A refresh extends the time to live by at most this time, in milliseconds. */
const MAX_REFRESH_MS = 3_600_000;
/** At most this many pages of a list are read. */
const MAX_PAGES = 1000;
/** A page has at most this many sandboxes. */
const PAGE = '1000';

const ID: ArgumentSpec = { name: 'id', help: 'the id of the sandbox' };

const TIMEOUT_OPTION: OptionSpec = {
  flags: '--timeout <time>',
  help: 'how long it lives from now on, such as 10m',
  parse: parseDuration,
};

/** These members of a sandbox are shown. */
interface SandboxLine {
  readonly id: string;
  readonly state: string;
  readonly phase: string;
  readonly address: string;
  readonly startedAt: string | null;
  readonly endAt: string | null;
  readonly secondsLeft: number | null;
  readonly metadata: unknown;
}

export const listSandboxesCommand = defineCommand<{ readonly state?: string }>({
  name: 'sandboxes list',
  summary: 'List the sandboxes of a gateway, with the time that each has left',
  arguments: [],
  options: [{ flags: '--state <state>', help: 'running or paused', choices: ['running', 'paused'] }],
  json: '{"sandboxes":[{"id","state","phase","address","startedAt","endAt","secondsLeft","metadata"}]}',
  async run(call, { state }) {
    const sandboxes = await listAll(await call.gateway(), state);
    await call.output.result({ sandboxes }, () =>
      call.output.table(
        [
          { title: 'ID' },
          { title: 'STATE' },
          { title: 'TIME LEFT', align: 'right' },
          { title: 'STARTED' },
          { title: 'ADDRESS' },
        ],
        sandboxes.map(({ id, state, phase, secondsLeft, startedAt, address }) => [
          { style: 'bold', text: id },
          { style: state === 'running' ? 'green' : 'yellow', text: phase || state },
          secondsLeft === null ? '-' : formatSeconds(secondsLeft),
          startedAt === null ? '-' : formatTime(new Date(startedAt)),
          address,
        ]),
      ),
    );
    return 0;
  },
});

async function listAll(gateway: HttpClient, state: string | undefined): Promise<SandboxLine[]> {
  const sandboxes: SandboxLine[] = [];
  let nextToken: string | undefined;
  for (let page = 0; page < MAX_PAGES; page++) {
    const query = { state, limit: PAGE, nextToken };
    const { body, headers } = await gateway.answer({ path: '/sandboxes', query });
    if (!Array.isArray(body))
      throw new Failure('failed', 'the gateway answered with something that is no list');
    sandboxes.push(...body.map(lineOf));
    const next = headers['x-next-token'];
    if (typeof next !== 'string' || next === '') break;
    nextToken = next;
  }
  return sandboxes;
}

/** Reads a sandbox from an answer, in which a gateway of another make may omit members. */
function lineOf(value: unknown): SandboxLine {
  const told = (value ?? {}) as Readonly<Record<string, unknown>>;
  const text = (name: string) => (typeof told[name] === 'string' ? (told[name] as string) : null);
  const endAt = text('endAt');
  const end = Date.parse(endAt ?? '');
  const [address, port] = [text('address'), told.port];
  return {
    id: text('sandboxID') ?? '',
    state: text('state') ?? '',
    phase: text('phase') ?? '',
    address: address === null ? '-' : `${address}${typeof port === 'number' ? `:${port}` : ''}`,
    startedAt: text('startedAt'),
    endAt,
    secondsLeft: Number.isNaN(end) ? null : Math.max(0, Math.round((end - Date.now()) / 1000)),
    metadata: told.metadata ?? {},
  };
}

export const extendSandboxCommand = defineCommand<{ readonly exactly?: boolean }>({
  name: 'sandboxes extend',
  summary: 'Give a sandbox more time',
  details: [
    'It lives for at least this time from now on; a longer time that it has is kept, except with --exactly.',
  ],
  arguments: [ID, { name: 'time', help: 'such as 90, 10m or 1h; at most 1h without --exactly' }],
  options: [{ flags: '--exactly', help: 'this time from now on, also if it has more' }],
  json: '{"id","seconds"}',
  async run(call, { exactly }) {
    const milliseconds = durationOf(call.argument(1));
    if (!exactly && milliseconds > MAX_REFRESH_MS)
      throw usageError('a sandbox is extended by 1h at most: --exactly sets any time');
    const seconds = Math.ceil(milliseconds / 1000);
    const [operation, body] = exactly
      ? ['timeout', { timeout: seconds }]
      : ['refreshes', { duration: seconds }];
    return change(call, 'POST', `/${operation}`, body, { id: call.argument(0), seconds });
  },
});

function durationOf(text: string): number {
  try {
    return parseDuration(text);
  } catch (error) {
    throw usageError(`'${text}': ${(error as Error).message}`);
  }
}

export const pauseSandboxCommand = defineCommand<CommandOptions>({
  name: 'sandboxes pause',
  summary: 'Pause a sandbox now',
  arguments: [ID],
  options: [],
  json: '{"id","state":"paused"}',
  run: (call) => change(call, 'POST', '/pause', undefined, { id: call.argument(0), state: 'paused' }),
});

export const resumeSandboxCommand = defineCommand<{ readonly timeout?: number }>({
  name: 'sandboxes resume',
  summary: 'Resume a paused sandbox',
  arguments: [ID],
  options: [TIMEOUT_OPTION],
  json: '{"id","state":"running"}',
  run: (call, { timeout }) => {
    const body = timeout === undefined ? undefined : { timeout: Math.ceil(timeout / 1000) };
    return change(call, 'POST', '/resume', body, { id: call.argument(0), state: 'running' });
  },
});

export const killSandboxCommand = defineCommand<CommandOptions>({
  name: 'sandboxes kill',
  summary: 'End a sandbox, with its machine',
  arguments: [ID],
  options: [],
  json: '{"id","state":"killed"}',
  run: (call) => change(call, 'DELETE', '', undefined, { id: call.argument(0), state: 'killed' }),
});

/** A hook of the platform may take this time, in milliseconds. */
const HOOK_MS = 10 * 60_000;

async function change(
  call: Call,
  method: string,
  operation: string,
  body: object | undefined,
  told: object,
): Promise<number> {
  const gateway = await call.gateway();
  const path = `/sandboxes/${encodeURIComponent(call.argument(0))}${operation}`;
  await gateway.text({ method, path, body, silenceMs: HOOK_MS });
  await call.output.result(told, async () => {});
  return 0;
}
