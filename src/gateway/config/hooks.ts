import {
  parseAs,
  parseCount,
  parseLifetimeOrNone,
  parseList,
  parsePath,
  parseWait,
  type Setting,
  setting,
} from '../../base/program/settings.ts';
import type { ResumeLimits } from '../expiry/resumes.ts';
import { readSecret } from '../hooks/signer.ts';
import { OUTCOMES, type Outcome, PAUSE_KEEPS, type PauseKeeps } from '../leases/sandbox.ts';

/** These settings say what hooks do to the machines of sandboxes, and when. */
export interface HookConfig extends ResumeLimits {
  /** A shell command or a URL that pauses or removes expired sandboxes; null if there is no hook. */
  readonly hook: string | null;
  /** This hook makes the machine of a new sandbox. If it is null, the platform must register sandboxes. */
  readonly createHook: string | null;
  /** The create hook provides these options of a creation. Others are refused, because the hook would ignore them. */
  readonly createOptions: readonly string[];
  /** The path of the file with the templates that the create hook knows, or null. */
  readonly templateFile: string | null;
  /** This gateway creates at most this many sandboxes at the same time. */
  readonly maxCreates: number;
  /** This hook removes a sandbox that is deleted. If it is null, only the record is removed. */
  readonly killHook: string | null;
  /** This hook resumes a paused sandbox. If it is null, the sandbox stays paused. */
  readonly resumeHook: string | null;
  /** This hook decides whether a client may extend the time to live of a sandbox. If it is null, every client may. */
  readonly extendHook: string | null;
  /** The URL of a server that gets the events of sandboxes, or null. */
  readonly eventHook: string | null;
  /** This hook says which machines exist. If it is null, they are not compared with the registry. */
  readonly listHook: string | null;
  /** The time between two comparisons, in seconds. */
  readonly listInterval: number;
  /** What happens to machines that have no record. */
  readonly reconcile: 'tell' | 'remove';
  /** They are removed after this time, in seconds. */
  readonly reconcileGrace: number;
  /** These secrets sign requests to URLs. If it is null, requests are not signed. */
  readonly hookSecret: readonly Buffer[] | null;
  /** A hook must end within this time, in seconds. */
  readonly hookTimeout: number;
  /** Runs of hook commands are recorded in this directory, so that none runs twice. */
  readonly hookDirectory: string;
  readonly onExpiry: Outcome;
  /** Clients may ask for pauses that keep these. */
  readonly pauseKeeps: readonly PauseKeeps[];
  /** A paused sandbox is forgotten after this time, in seconds; 0 means never. */
  readonly keepPaused: number;
}

/** These settings have no default. */
export const OPTIONAL_HOOKS = {
  hook: null,
  createHook: null,
  killHook: null,
  resumeHook: null,
  listHook: null,
  extendHook: null,
  eventHook: null,
  templateFile: null,
  hookSecret: null,
} as const;

/** Returns a command without the blanks around it, or a URL in its normal form; null if the text is neither. */
function readHook(given: string): string | null {
  // A blank before a URL would make it a command, which nobody has meant.
  const text = given.trim();
  if (text === '') return null;
  // No program has a name that begins like a URL, so everything else is a command.
  if (!/^[a-z][a-z0-9+.-]*:\/|^https?:/i.test(text)) return text;
  const url = URL.parse(text);
  return url && isAuthority(text) && url.port !== '0' && url.hash === '' ? url.href : null;
}

const parseHook = parseAs(
  readHook,
  'It must be a command, or a URL such as https://platform.example/hook without a fragment.',
);

const parseHookUrl = parseAs(
  (given) => (/^https?:/i.test(given.trim()) ? readHook(given) : null),
  'It must be a URL such as https://platform.example/events without a fragment.',
);

/** Returns the name of an option, or null if the text is none. */
function readOption(text: string): string | null {
  return /^\w+(\.\w+)?$/.test(text) ? text : null;
}

/** Returns what a pause keeps, or null if the text is none of it. */
function readKept(text: string): PauseKeeps | null {
  return PAUSE_KEEPS.find((each) => each === text) ?? null;
}

/** Returns whether a URL names a host. `http:///path` does not, although URL.parse() takes the path for the host. */
function isAuthority(text: string): boolean {
  return /^https?:\/\/[^/\\\s]/i.test(text);
}

/** Returns what is wrong with the hooks together, or null. */
export function faultOfHooks({ reconcile, listHook, killHook, ...more }: HookConfig): string | null {
  if (more.pauseKeeps.includes('disk') && (more.hook === null || more.resumeHook === null))
    return "'--pause-keeps disk' needs '--hook' and '--resume-hook': set both";
  if (reconcile === 'tell' || (listHook !== null && killHook !== null)) return null;
  return "'--reconcile remove' needs '--list-hook' and '--kill-hook': set both";
}

/** The flags for hooks. */
export const HOOK_SETTINGS: readonly Setting[] = [
  setting('--hook <command|url>', 'pauses or removes a sandbox that has expired', parseHook),
  setting('--create-hook <command|url>', 'makes the machine of a new sandbox', parseHook),
  {
    ...setting(
      '--create-options <names>',
      'what the create hook provides of a creation, such as volumeMounts,network.denyOut',
      parseList(readOption, 'It must be names such as volumeMounts or network.denyOut, separated by commas.'),
      [],
    ),
    defaultText: 'none',
  },
  setting(
    '--template-file <file>',
    'templates that the create hook knows, an id and aliases in each line',
    parsePath,
  ),
  setting('--kill-hook <command|url>', 'removes the machine of a sandbox that is deleted', parseHook),
  setting('--resume-hook <command|url>', 'resumes a paused sandbox when a request needs it', parseHook),
  setting('--extend-hook <command|url>', 'decides whether a client may extend a time to live', parseHook),
  setting('--event-hook <url>', 'gets what happens to sandboxes', parseHookUrl),
  setting('--list-hook <command|url>', 'says which machines exist, one id in each line', parseHook),
  setting('--list-interval <seconds>', 'time between two comparisons with that list', parseWait, 180),
  {
    flags: '--reconcile <action>',
    help: 'what happens to machines that are in the list and not in the registry',
    choices: ['tell', 'remove'],
    defaultValue: 'tell',
  },
  setting(
    '--reconcile-grace <seconds>',
    'time after which such a machine is removed; longer than a registration takes',
    parseWait,
    600,
  ),
  setting(
    '--hook-secret <list>',
    'secrets (whsec_ and base64) that sign requests to URLs, as in Standard Webhooks',
    parseList(readSecret, 'It must be whsec_ and 24 to 64 bytes in base64. Separate several by commas.'),
  ),
  setting('--hook-timeout <seconds>', 'time limit for a hook', parseWait, 60),
  setting(
    '--hook-directory <path>',
    'directory of the runs of hook commands; only gateways of this host may use it',
    parsePath,
    '/var/lib/envd-gateway/hooks',
  ),
  {
    flags: '--on-expiry <outcome>',
    help: 'what the hook does to an expired sandbox that was registered without onExpiry',
    choices: OUTCOMES,
    defaultValue: 'pause',
  },
  {
    ...setting(
      '--pause-keeps <list>',
      'what the hook can keep of a paused sandbox; disk: a pause without the memory, which a client must ask for',
      parseList(readKept, 'It must be memory, disk, or both, separated by a comma.'),
      ['memory'],
    ),
    defaultText: 'memory',
  },
  setting(
    '--keep-paused <seconds>',
    'time after which a paused sandbox is forgotten; 0: never',
    parseLifetimeOrNone,
    30 * 86_400,
  ),
  setting('--resume-wait <seconds>', 'time limit for a request to wait for a paused sandbox', parseWait, 30),
  setting(
    '--max-waiting <number>',
    'maximum number of requests that wait for paused sandboxes',
    parseCount,
    1024,
  ),
  setting('--max-resumes <number>', 'maximum number of sandboxes that are resumed at a time', parseCount, 64),
  setting('--max-creates <number>', 'maximum number of sandboxes that are created at a time', parseCount, 64),
];
