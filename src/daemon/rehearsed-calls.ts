// The calls of the platform and of a first client after a resume, as they send them.
import { randomUUID } from 'node:crypto';
import type { Codec } from './rpc/codec.ts';
import { startFrame } from './rpc/process-messages.ts';

/** How long the rehearsed pause takes, in milliseconds. */
const PAUSE_MS = 10_000;

/** A call, ready to be sent. */
export interface RehearsedCall {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  /** Names and values in turn. Without `Content-Length` the body comes in chunks. */
  readonly headers: readonly string[];
  readonly body: string | Buffer;
}

export interface Caller {
  /** What the operations require. */
  readonly token: string;
  /** Prefix of the platform's own headers, as `--name-prefix`. */
  readonly prefix: string;
  /** The names in the body of the platform's last `/init`, in their order. */
  readonly initMembers: readonly string[];
}

/** The headers of a call in the order of a client's library; `length`: of the body, in bytes. */
type Manner = (own: readonly Header[], length: number) => Header[];
type Header = readonly [name: string, value: string];

const HOST: Header = ['host', 'localhost:49983'];
const TIMEOUT: Header = ['connect-timeout-ms', '60000'];
const CONNECTION: Header = ['connection', 'keep-alive'];

/**
 * V8 gives objects with the same members in another order another hidden class, such as those with the headers of a request: what it
 * learns of one says nothing of another.
 */
const MANNERS: readonly Manner[] = [
  // Go's net/http: the platform.
  (own, length) => [
    ...[HOST, ...agentOf(own, 'Go-http-client/1.1'), ...lengthOf(length), ...own],
    ['accept-encoding', 'gzip'],
  ],
  // connect-node, whose bodies come in chunks.
  (own) => [...own, HOST, CONNECTION],
  // fetch.
  (own, length) => [
    ...[HOST, CONNECTION, ...own],
    ['accept', '*/*'],
    ['accept-language', '*'],
    ['sec-fetch-mode', 'cors'],
    ...agentOf(own, 'node'),
    ['accept-encoding', 'gzip, deflate'],
    ...lengthOf(length),
  ],
];

/** The library's own name, if the caller has none. */
function agentOf(own: readonly Header[], name: string): Header[] {
  return own.some(([header]) => header === 'user-agent') ? [] : [['user-agent', name]];
}

function lengthOf(length: number): Header[] {
  return length === 0 ? [] : [['content-length', String(length)]];
}

/** What is started in turn: what is over before its start is told, and what its client waits for, and could write to. */
const STARTS = [
  { process: { cmd: '/bin/true', cwd: '/' }, stdin: false },
  { process: { cmd: '/bin/true', cwd: '/' }, stdin: false },
  { process: { cmd: '/bin/sleep', args: ['0.01'], envs: { NAME: 'value' } }, stdin: true },
  { process: { cmd: '/bin/sleep', args: ['0.01'], envs: { NAME: 'value' } }, stdin: true },
];

/** The calls of a round, in the order in which they come after a resume. */
export function firstCalls(round: number, { token, prefix, initMembers }: Caller): RehearsedCall[] {
  const codec: Codec = round % 2 === 0 ? 'json' : 'binary';
  const manner = MANNERS[round % MANNERS.length] ?? ((own) => [...own]);
  const call = (
    method: 'GET' | 'POST',
    path: string,
    own: readonly Header[],
    body: string | Buffer = '',
  ): RehearsedCall => {
    const sorted = [...own].sort(([one], [other]) => (one < other ? -1 : 1));
    return { method, path, headers: manner(sorted, Buffer.byteLength(body)).flat(), body };
  };
  const isAsLast = initMembers.length > 0 && round % 4 >= 2;
  const all = allSettings(token, round);
  const settings = isAsLast ? Object.fromEntries(initMembers.map((name) => [name, all[name] ?? null])) : all;
  const json: Header = ['content-type', 'application/json'];
  const client: readonly Header[] = [
    ['x-access-token', token],
    ['authorization', `Basic ${btoa('root:')}`],
    ['user-agent', 'rehearsal'],
    [`${prefix}-sandbox-id`, 'rehearsal'],
    [`${prefix}-sandbox-port`, '49983'],
  ];
  const connect: readonly Header[] = [...client, ['connect-protocol-version', '1']];
  const stream: readonly Header[] = [
    ...connect,
    ['content-type', `application/connect+${codec === 'json' ? 'json' : 'proto'}`],
    ['keepalive-ping-interval', '50'],
    ...(round % 4 < 2 ? [TIMEOUT] : []),
  ];
  const start = startFrame(STARTS[round % STARTS.length] ?? {}, codec);
  return [
    call('GET', '/health', []),
    call('POST', '/init', [json], JSON.stringify(settings)),
    call('POST', '/process.Process/Start', stream, start),
    call('POST', '/filesystem.Filesystem/Stat', [...connect, json], '{"path":"/"}'),
    call('GET', '/files?path=/etc/passwd', client),
  ];
}

/** Members of the body of `/init` that have no effect on the machine. */
function allSettings(token: string, round: number): Record<string, unknown> {
  return {
    accessToken: token,
    // Ahead, so that the clock would have to be set.
    timestamp: new Date(Date.now() + PAUSE_MS),
    // Each time another life, of which the metadata are read.
    lifecycleID: randomUUID(),
    // Objects of different hidden classes, as those of a platform are.
    envVars: { [`NAME_${round % 3}`]: 'value' },
    defaultUser: 'root',
  };
}
