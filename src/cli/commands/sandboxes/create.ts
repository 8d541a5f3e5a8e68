import { Failure } from '../../output/failure.ts';
import { openShell } from '../process/shell.ts';
import { defineCommand } from '../spec/command.ts';
import { parseAssignment, parseDuration } from '../spec/parsers.ts';
import { METADATA_OPTION, secondsOf } from './add.ts';
import { HOOK_MS, TIMEOUT_OPTION } from './sandboxes.ts';

interface CreateOptions {
  readonly shell?: boolean;
  readonly timeout?: number;
  readonly idleTimeout?: number;
  readonly onExpiry?: string;
  readonly metadata?: readonly (readonly [name: string, value: string])[];
  readonly env?: readonly (readonly [name: string, value: string])[];
}

/** Published clients use this template if none is named. */
const DEFAULT_TEMPLATE = 'base';

export const createSandboxCommand = defineCommand<CreateOptions>({
  name: 'sandboxes create',
  summary: 'Have a gateway make a sandbox, and print its id',
  examples: ['envctl sandboxes create base --timeout 1h', 'envctl sandboxes create --shell'],
  details: [
    'The gateway needs a hook that makes machines. With --shell, a shell is opened in the sandbox, which goes on when the shell ends.',
  ],
  arguments: [{ name: 'template', help: `default: ${DEFAULT_TEMPLATE}`, isOptional: true }],
  options: [
    { flags: '--shell', help: 'open a shell in it' },
    TIMEOUT_OPTION,
    {
      flags: '--idle-timeout <time>',
      help: 'it expires after this time without use, too',
      parse: parseDuration,
    },
    {
      flags: '--on-expiry <action>',
      help: 'what happens when its time is up: pause or remove, the default',
      choices: ['pause', 'remove'],
    },
    METADATA_OPTION,
    {
      flags: '-e, --env <NAME=VALUE>',
      help: 'set a variable of all of its processes; may be repeated',
      parse: parseAssignment,
      isRepeated: true,
    },
  ],
  json: '{"id"}',
  async run(call, { shell, timeout, idleTimeout, onExpiry, metadata = [], env = [] }) {
    const gateway = await call.gateway();
    const [templateID = DEFAULT_TEMPLATE] = call.arguments;
    const body = {
      templateID,
      timeout: secondsOf(timeout),
      idleTimeout: secondsOf(idleTimeout),
      autoPause: onExpiry === 'pause',
      metadata: Object.fromEntries(metadata),
      envVars: Object.fromEntries(env),
    };
    const made = await gateway.json({ method: 'POST', path: '/sandboxes', body, silenceMs: HOOK_MS });
    const { sandboxID: id } = (made ?? {}) as { sandboxID?: unknown };
    if (typeof id !== 'string')
      throw new Failure('failed', 'the gateway answered without the id of the sandbox');
    if (!shell || !call.output.isJson) await call.output.result({ id }, () => call.output.line(id));
    if (!shell) return 0;
    call.chooseSandbox(id);
    return openShell(call, {});
  },
});
