import { usageError } from '../../output/failure.ts';
import { defineCommand } from '../spec/command.ts';
import type { OptionSpec } from '../spec/description.ts';
import { parseAssignment, parseDuration } from '../spec/parsers.ts';
import { readSandboxLine } from './sandbox-lines.ts';
import { TIMEOUT_OPTION } from './sandboxes.ts';

interface AddOptions {
  readonly timeout?: number;
  readonly idleTimeout?: number;
  readonly onExpiry?: string;
  readonly owner?: string;
  readonly host?: string;
  readonly metadata?: readonly (readonly [name: string, value: string])[];
}

export const METADATA_OPTION: OptionSpec = {
  flags: '--metadata <name=value>',
  help: 'a text that lists show and can be searched for; may be given several times',
  parse: parseAssignment,
  isRepeated: true,
};

export const addSandboxCommand = defineCommand<AddOptions>({
  name: 'sandboxes add',
  summary: 'Register a sandbox at a gateway',
  examples: ['envctl sandboxes add box 10.0.0.5 --timeout 1h --token-file token'],
  details: [
    'The gateway forwards calls to it from then on. A sandbox with the same id is replaced. It needs a key of the platform.',
    "The token of the sandbox' daemon is that of --token-file or --token, and its port that of --port. Those of a variable or a context are not used, because they belong to another sandbox.",
  ],
  arguments: [
    { name: 'id', help: 'the id of the sandbox' },
    { name: 'address', help: 'the address or host name of the guest' },
  ],
  options: [
    TIMEOUT_OPTION,
    {
      flags: '--idle-timeout <time>',
      help: 'it expires after this time without use, too',
      parse: parseDuration,
    },
    {
      flags: '--on-expiry <action>',
      help: 'what happens when its time is up: pause or remove',
      choices: ['pause', 'remove'],
    },
    { flags: '--owner <name>', help: 'the client whose key lists and extends it, too' },
    { flags: '--host <name>', help: 'the machine that it is on; default: its address' },
    METADATA_OPTION,
  ],
  json: '{"id","state","phase","address","startedAt","endAt","secondsLeft","metadata"}',
  async run(call, { timeout, idleTimeout, onExpiry, owner, host, metadata }) {
    const { token, port } = await call.flagSettings();
    const [id, address] = [call.argument(0), call.argument(1)];
    if (address.includes('/')) throw usageError(`'${address}' is a URL: give the address alone, and --port`);
    const body = {
      ...{ sandboxID: id, address, port, onExpiry, owner, host },
      envdAccessToken: token === '' ? undefined : token,
      timeout: secondsOf(timeout),
      idleTimeout: secondsOf(idleTimeout),
      metadata: metadata && Object.fromEntries(metadata),
    };
    const gateway = await call.gateway();
    const added = readSandboxLine(await gateway.json({ method: 'POST', path: '/sandboxes', body }));
    await call.output.result(added, async () => {});
    return 0;
  },
});

/** Returns whole seconds for milliseconds. */
export function secondsOf(milliseconds: number | undefined): number | undefined {
  return milliseconds === undefined ? undefined : Math.ceil(milliseconds / 1000);
}
