import { parsePort } from '../../../base/program/settings.ts';
import type { WhenPaused } from '../../connection/connection.ts';
import type { OptionSpec } from './description.ts';

/** Every command has these options. */
export interface GlobalOptions {
  readonly url?: string;
  readonly gateway?: string;
  readonly sandbox?: string;
  readonly port?: number;
  readonly token?: string;
  readonly tokenFile?: string;
  readonly apiKey?: string;
  readonly user?: string;
  readonly headerPrefix?: string;
  readonly context?: string;
  readonly whenPaused?: WhenPaused;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

export const GLOBAL_OPTIONS: readonly OptionSpec[] = [
  { flags: '--url <url>', help: 'the daemon; default: http://127.0.0.1:49983' },
  { flags: '--gateway <url>', help: 'a gateway, with --sandbox' },
  { flags: '--sandbox <id>', help: 'the sandbox behind the gateway', completes: 'sandbox' },
  { flags: '--port <number>', help: "the daemon's port in that sandbox", parse: parsePort },
  {
    flags: '--token <token>',
    help: 'the access token; others on this machine can see it, so prefer --token-file',
  },
  { flags: '--token-file <file>', help: 'a file with the access token', completes: 'file' },
  { flags: '--api-key <key>', help: "the gateway's key; prefer the variable ENVCTL_API_KEY" },
  { flags: '--user <name>', help: 'the user in the sandbox; default: the one of the daemon' },
  {
    flags: '--header-prefix <name>',
    help: "prefix of the gateway's headers; default: what it tells, or Svc",
  },
  { flags: '--context <name>', help: 'a context of `envctl context`', completes: 'context' },
  {
    flags: '--when-paused <what>',
    help: 'if the sandbox is paused meanwhile: wait until it is resumed, end, or wake it; default: wait',
    choices: ['wait', 'end', 'wake'],
  },
  { flags: '--json', help: 'print JSON' },
  { flags: '-q, --quiet', help: 'print results, warnings and errors only' },
];

/** The variable of each option, with its text in the manual. */
export const VARIABLES: Readonly<Record<string, string>> = {
  ENVCTL_URL: '--url',
  ENVCTL_GATEWAY: '--gateway',
  ENVCTL_SANDBOX: '--sandbox',
  ENVCTL_PORT: '--port',
  ENVCTL_TOKEN: '--token',
  ENVCTL_API_KEY: '--api-key',
  ENVCTL_USER: '--user',
  ENVCTL_HEADER_PREFIX: '--header-prefix',
  ENVCTL_CONTEXT: '--context',
};
