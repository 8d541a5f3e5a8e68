import {
  parseAs,
  parseCount,
  parseList,
  parsePath,
  parseSeconds,
  parseWholeSeconds,
  type Setting,
  setting,
} from '../../base/program/settings.ts';
import type { ResumeLimits } from '../expiry/resumes.ts';
import { readSecret } from '../hooks/signer.ts';
import { OUTCOMES, type Outcome } from '../leases/sandbox.ts';

/** What is done to the machines of sandboxes, and when. */
export interface HookConfig extends ResumeLimits {
  /** A shell command or a URL that pauses or removes what has expired; null: no hook. */
  readonly hook: string | null;
  /** The same for making the machine of a new sandbox; null: the platform registers sandboxes. */
  readonly createHook: string | null;
  /** The most sandboxes that this gateway creates concurrently. */
  readonly maxCreates: number;
  /** The same for removing a sandbox at once; null: only the record is removed. */
  readonly killHook: string | null;
  /** The same for resuming a paused sandbox; null: it stays paused. */
  readonly resumeHook: string | null;
  /** Secrets that sign requests to URLs; null: unsigned. */
  readonly hookSecret: readonly Buffer[] | null;
  /** How long a hook may take, in seconds. */
  readonly hookTimeout: number;
  /** Where runs of hook commands are recorded, so that none runs twice. */
  readonly hookDirectory: string;
  readonly onExpiry: Outcome;
  /** How long paused sandboxes are remembered, in seconds; 0: for ever. */
  readonly keepPaused: number;
}

/** Settings without a default. */
export const OPTIONAL_HOOKS = {
  hook: null,
  createHook: null,
  killHook: null,
  resumeHook: null,
  hookSecret: null,
} as const;

/** A command, or a URL that can be called; null for what is neither. */
function readHook(text: string): string | null {
  if (text === '') return null;
  // A shell would find no program of this name.
  if (!/^[a-z][a-z0-9+.-]*:\/|^https?:/i.test(text)) return text;
  const url = URL.parse(text);
  return url && isAuthority(text) && url.port !== '0' && url.hash === '' ? url.href : null;
}

const parseHook = parseAs(
  readHook,
  'It must be a command, or a URL such as https://platform.example/hook, without a fragment.',
);

/** Whether a URL names a host itself: `http:///path` does not, though URL.parse() takes the path for one. */
function isAuthority(text: string): boolean {
  return /^https?:\/\/[^/\\\s]/i.test(text);
}

/** The hooks in the table of flags. */
export const HOOK_SETTINGS: readonly Setting[] = [
  setting('--hook <command|url>', 'called when a sandbox has expired', parseHook),
  setting('--create-hook <command|url>', 'called to make the machine of a new sandbox', parseHook),
  setting('--kill-hook <command|url>', 'called when a sandbox is to be removed', parseHook),
  setting('--resume-hook <command|url>', 'called when a paused sandbox is needed', parseHook),
  setting(
    '--hook-secret <list>',
    'whsec_ and base64: signs requests to URLs as Standard Webhooks says',
    parseList(readSecret, 'It must be whsec_ and 24 to 64 bytes in base64; several are separated by commas.'),
  ),
  setting('--hook-timeout <seconds>', 'time after which a hook is killed', parseSeconds, 60),
  setting(
    '--hook-directory <path>',
    'keeps the runs of hook commands',
    parsePath,
    '/var/lib/envd-gateway/hooks',
  ),
  {
    flags: '--on-expiry <outcome>',
    help: 'what the hook does to an expired sandbox',
    choices: OUTCOMES,
    defaultValue: 'pause',
  },
  setting(
    '--keep-paused <seconds>',
    'time after which a paused sandbox is forgotten; 0: never',
    parseWholeSeconds,
    30 * 86_400,
  ),
  setting(
    '--resume-wait <seconds>',
    'time that a request waits for a sandbox to be resumed',
    parseSeconds,
    30,
  ),
  setting('--max-waiting <number>', 'limit of requests that wait so', parseCount, 1024),
  setting('--max-resumes <number>', 'limit of sandboxes that are resumed at a time', parseCount, 64),
  setting('--max-creates <number>', 'limit of sandboxes that are created at a time', parseCount, 64),
];
