import { usageError } from '../../output/failure.ts';
import { formatSeconds, formatTime } from '../../output/formats.ts';
import type { Call } from '../spec/call.ts';
import { type CommandOptions, defineCommand } from '../spec/command.ts';
import type { ArgumentSpec, OptionSpec } from '../spec/description.ts';
import { parseDuration } from '../spec/parsers.ts';
import { listSandboxes } from './sandbox-lines.ts';

/** A refresh extends the time to live by at most this time, in milliseconds. */
const MAX_REFRESH_MS = 3_600_000;
export const ID_ARGUMENT: ArgumentSpec = {
  name: 'id',
  help: 'the id of the sandbox',
  completes: 'sandbox',
};

export const TIMEOUT_OPTION: OptionSpec = {
  flags: '--timeout <time>',
  help: 'how long it lives from now on, such as 10m',
  parse: parseDuration,
};

export const listSandboxesCommand = defineCommand<{ readonly state?: string }>({
  name: 'sandboxes list',
  summary: 'List the sandboxes of a gateway, with the time that each has left',
  examples: ['envctl sandboxes list --state running'],
  arguments: [],
  options: [{ flags: '--state <state>', help: 'running or paused', choices: ['running', 'paused'] }],
  json: '{"sandboxes":[{"id","state","phase","address","startedAt","endAt","secondsLeft","metadata"}]}',
  async run(call, { state }) {
    const sandboxes = await listSandboxes(await call.gateway(), state);
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

export const extendSandboxCommand = defineCommand<{ readonly exactly?: boolean }>({
  name: 'sandboxes extend',
  summary: 'Give a sandbox more time',
  examples: ['envctl sandboxes extend ID 30m'],
  details: [
    'It lives for at least this time from now on; a longer time that it has is kept, except with --exactly.',
  ],
  arguments: [ID_ARGUMENT, { name: 'time', help: 'such as 90, 10m or 1h; at most 1h without --exactly' }],
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
  examples: ['envctl sandboxes pause ID'],
  arguments: [ID_ARGUMENT],
  options: [],
  json: '{"id","state":"paused"}',
  run: (call) => change(call, 'POST', '/pause', undefined, { id: call.argument(0), state: 'paused' }),
});

export const resumeSandboxCommand = defineCommand<{ readonly timeout?: number }>({
  name: 'sandboxes resume',
  summary: 'Resume a paused sandbox',
  examples: ['envctl sandboxes resume ID --timeout 1h'],
  arguments: [ID_ARGUMENT],
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
  examples: ['envctl sandboxes kill ID'],
  arguments: [ID_ARGUMENT],
  options: [],
  json: '{"id","state":"killed"}',
  run: (call) => change(call, 'DELETE', '', undefined, { id: call.argument(0), state: 'killed' }),
});

/** A hook of the platform may take this time, in milliseconds. */
export const HOOK_MS = 10 * 60_000;

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
