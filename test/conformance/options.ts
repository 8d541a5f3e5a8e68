import { parseArgs } from 'node:util';

/** What a run does only when it is asked to. */
const OPTIONS = {
  freeze: 'freeze and thaw the workload, and collapse memory',
  fsfreeze: 'freeze and thaw the root file system',
  init: 'call /init with a timestamp, variables and defaults: for a guest that is thrown away',
  upgrade: 'let the daemon replace itself',
  extensions: 'the extensions of docs/extensions.md too, which the contract does not have',
  slow: 'cases that wait for half a minute',
} as const;

export type Option = keyof typeof OPTIONS;

export interface Settings {
  readonly url: URL;
  readonly token: string | null;
  /** Where the JSON report goes. */
  readonly report: string | null;
  /** A directory of the guest; the run makes one in it, and removes it. */
  readonly directory: string;
  /** For each case. */
  readonly limitMs: number;
  /** Most that cases of many calls at once open at a time. */
  readonly connections: number;
  /** Null: all. Otherwise the numbers of sections, and words in names. */
  readonly only: readonly string[] | null;
  readonly options: ReadonlySet<Option>;
}

const LIMIT_SECONDS = 60;
const CONNECTIONS = 40;

export const USAGE = [
  'npm run conformance -- --url URL [OPTION…]',
  '',
  'Holds the daemon at URL to the contract, and changes nothing in its guest beyond a directory that it removes again.',
  'Exit code 0: all cases that were run have passed; 1: some have failed; 2: bad arguments.',
  '',
  '  --token TOKEN    the access token, if one is set',
  '  --report FILE    a report in JSON',
  '  --dir DIR        of the guest, with user attributes; a directory is made there (default: /tmp)',
  `  --limit SECONDS  for each case (default: ${LIMIT_SECONDS})`,
  `  --connections N  at a time, where many calls come at once (default: ${CONNECTIONS})`,
  '  --only WORD      a section (5.1) or a part of names; may be repeated',
  ...Object.entries(OPTIONS).map(([name, what]) => `  ${`--${name}`.padEnd(15)}  ${what}`),
].join('\n');

/** Throws an `Error` that says what is wrong with the arguments. */
export function readSettings(argv: readonly string[]): Settings {
  const text = { type: 'string' } as const;
  const { values } = parseArgs({
    args: [...argv],
    options: {
      ...{ url: text, token: text, report: text, dir: text, limit: text, connections: text },
      only: { type: 'string', multiple: true },
      ...Object.fromEntries(Object.keys(OPTIONS).map((name) => [name, { type: 'boolean' } as const])),
    },
  });
  const limit = Number(values.limit ?? LIMIT_SECONDS);
  if (!(limit > 0)) throw new Error(`--limit is a number of seconds, not '${values.limit}'`);
  const connections = Number(values.connections ?? CONNECTIONS);
  if (!(connections >= 1)) throw new Error(`--connections is a positive number, not '${values.connections}'`);
  const directory = values.dir ?? '/tmp';
  if (!directory.startsWith('/'))
    throw new Error(`--dir is an absolute path in the guest, not '${directory}'`);
  return {
    url: urlOf(values.url),
    token: values.token ?? null,
    report: values.report ?? null,
    directory: directory.replace(/\/+$/, ''),
    limitMs: limit * 1000,
    connections: Math.floor(connections),
    only: values.only ?? null,
    options: new Set((Object.keys(OPTIONS) as Option[]).filter((name) => name in values)),
  };
}

function urlOf(text: string | undefined): URL {
  if (text === undefined) throw new Error('--url is missing');
  const url = URL.canParse(text) ? new URL(text) : null;
  if (!url || !/^https?:$/.test(url.protocol))
    throw new Error(`--url is an http or https URL, not '${text}'`);
  return url;
}
