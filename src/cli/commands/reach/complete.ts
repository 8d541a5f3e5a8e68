import { constants } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { headersOf, targetOf } from '../../connection/endpoint.ts';
import { lookUp } from '../../connection/gateway-look-ups.ts';
import { HttpClient } from '../../connection/http.ts';
import type { Call } from '../spec/call.ts';
import { defineCommand } from '../spec/command.ts';
import { DYNAMIC, type DynamicCompletion } from '../spec/description.ts';
import type { GlobalOptions } from '../spec/global-options.ts';

/** A shell waits for at most this time, in milliseconds. */
const LIMIT_MS = 500;
/** At most so many names are told. */
const MOST = 1000;

export const completeCommand = defineCommand<object>({
  name: 'complete',
  summary: 'Print what a word may become, for the scripts of `envctl completion`',
  examples: ['envctl complete path :src/ -- envctl cat :src/'],
  details: [
    'The words behind -- are those of the line so far, of which the options count that name the daemon. Prints nothing if that fails, or takes longer than half a second.',
  ],
  arguments: [
    { name: 'kind', help: DYNAMIC.join(', ') },
    { name: 'word', help: 'the word so far' },
    { name: 'line', help: 'the line so far', isOptional: true, isVariadic: true },
  ],
  options: [],
  json: 'not JSON',
  async run(call) {
    const [kind = '', word = '', ...line] = call.arguments;
    const ask = ASKS[kind as DynamicCompletion];
    if (!ask) return 0;
    call.useOptions(placeIn(line));
    const found = await Promise.race([ask(call, word).catch(() => []), delay(LIMIT_MS, [])]);
    const fitting = found.filter((each) => each.startsWith(word) && !/[\p{Cc}\ufffd]/u.test(each));
    for (const each of [...new Set(fitting)].slice(0, MOST)) await call.output.line(each);
    return 0;
  },
});

const ASKS: Readonly<Record<DynamicCompletion, (call: Call, word: string) => Promise<readonly string[]>>> = {
  path: pathsFor,
  process: processes,
  sandbox: sandboxes,
  context: async (call) => [...(await call.contexts.read()).contexts.keys()],
  signal: async () => Object.keys(constants.signals).map((name) => name.replace(/^SIG/, '')),
};

/** Returns the entries of the directory that a word names, with or without a colon before it. */
async function pathsFor(call: Call, word: string): Promise<readonly string[]> {
  const { colon = '', directory = '' } = /^(?<colon>:?)(?<directory>.*\/)?/.exec(word)?.groups ?? {};
  const answer = await rpc(call, 'filesystem.Filesystem/ListDir', { path: directory || '.', depth: 1 });
  return listIn(answer, 'entries').flatMap(({ name, type }) =>
    typeof name === 'string'
      ? [`${colon}${directory}${name}${type === 'FILE_TYPE_DIRECTORY' ? '/' : ''}`]
      : [],
  );
}

async function processes(call: Call): Promise<readonly string[]> {
  const listed = listIn(await rpc(call, 'process.Process/List', {}), 'processes');
  return listed.flatMap(({ pid, tag }) => [String(pid), ...(typeof tag === 'string' ? [tag] : [])]);
}

async function sandboxes(call: Call): Promise<readonly string[]> {
  const gateway = await call.gateway();
  const listed = listIn(
    { listed: await gateway.json({ path: '/sandboxes', query: { limit: String(MOST) } }) },
    'listed',
  );
  return listed.flatMap(({ sandboxID }) => (typeof sandboxID === 'string' ? [sandboxID] : []));
}

/** Makes an RPC in JSON, for which no library is loaded. Throws `Failure`. */
async function rpc(call: Call, method: string, body: object): Promise<unknown> {
  const target = targetOf(await lookUp(await call.settings()));
  const { user } = target;
  const http = new HttpClient(target.url, target.name, {
    ...headersOf(target),
    ...(user !== null && { authorization: `Basic ${Buffer.from(`${user}:`).toString('base64')}` }),
  });
  try {
    return await http.json({ method: 'POST', path: `/${method}`, body });
  } finally {
    http.close();
  }
}

function listIn(answer: unknown, name: string): readonly Readonly<Record<string, unknown>>[] {
  const list = (answer as Readonly<Record<string, unknown>> | null)?.[name];
  return Array.isArray(list) ? list : [];
}

const PLACES = [
  'url',
  'gateway',
  'sandbox',
  'token',
  'token-file',
  'api-key',
  'user',
  'header-prefix',
  'context',
];
const NAMES: Readonly<Record<string, keyof GlobalOptions>> = {
  'token-file': 'tokenFile',
  'api-key': 'apiKey',
  'header-prefix': 'headerPrefix',
};

/** Returns the options of a line that name a daemon. */
function placeIn(line: readonly string[]): GlobalOptions {
  const found = line.flatMap((word, index) => {
    const [, name = '', value = line[index + 1]] = /^--([a-z-]+)(?:=(.*))?$/.exec(word) ?? [];
    return PLACES.includes(name) && value !== undefined && value !== '' ? [[NAMES[name] ?? name, value]] : [];
  });
  return Object.fromEntries(found);
}
