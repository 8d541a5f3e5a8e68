import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { create } from '@bufbuild/protobuf';
import { Code, ConnectError, type ConnectRouter } from '@connectrpc/connect';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import {
  type EntryInfo,
  EntryInfoSchema,
  EventType,
  Filesystem,
  FileType,
  WatchDirResponseSchema,
} from '../../../src/gen/filesystem/filesystem_pb.js';
import { Process, type ProcessEvent, ProcessEventSchema } from '../../../src/gen/process/process_pb.js';

/** A file or directory of the stub, by its path; content: of a file. */
export type StubTree = Readonly<Record<string, string | null>>;

export interface StubOptions {
  /** Paths with their content; null: a directory. */
  readonly tree?: StubTree;
  /** Names that `/list` is said to have, whatever they are. */
  readonly hostileNames?: readonly string[];
  /** Text of every error, and of names of processes. */
  readonly text?: string;
  /** It says that it has the extensions of envd, and answers with this to who wants an archive. */
  readonly archive?: Buffer;
}

/**
 * A daemon that knows the published interface alone, made of the protocol's published implementation; and a stream of ports, whose
 * line does not end.
 */
export interface StubDaemon extends AsyncDisposable {
  readonly url: string;
  /** What was uploaded, by path. */
  readonly uploads: ReadonlyMap<string, Buffer>;
  /** Signals that were sent. */
  readonly signals: readonly number[];
}

export async function startStubDaemon(options: StubOptions = {}): Promise<StubDaemon> {
  const { tree = {}, hostileNames = [], text = '', archive } = options;
  const uploads = new Map<string, Buffer>();
  const signals: number[] = [];
  const routes = (router: ConnectRouter) => {
    router.service(Process, processes(signals, text));
    router.service(Filesystem, files(tree, uploads, hostileNames));
  };
  const rpcs = connectNodeAdapter({ routes });
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? '', 'http://stub');
    if (archive && url.searchParams.get('format') === 'tar') response.writeHead(200).end(archive);
    else if (archive && url.pathname === '/health') response.end('{"version":"1.0.0","abilities":{}}');
    else if (url.pathname === '/health') response.writeHead(204).end();
    else if (url.pathname === '/ports/stream') response.write('x'.repeat(1024 * 1024));
    else if (url.pathname === '/files') void transfer(request, response, url, tree, uploads);
    else rpcs(request, response);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    uploads,
    signals,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
    },
  };
}

const event = (told: ProcessEvent['event']) => ({ event: create(ProcessEventSchema, { event: told }) });
const output = (stream: 'stdout' | 'stderr', text: string) =>
  event({ case: 'data', value: { output: { case: stream, value: Buffer.from(text) } } } as never);
const end = (exitCode: number) =>
  event({ case: 'end', value: { exitCode, exited: true, status: `exit status ${exitCode}` } } as never);
const endBySignal = (status: string) =>
  event({ case: 'end', value: { exitCode: -1, exited: false, status } } as never);
const start = event({ case: 'start', value: { pid: 7 } } as never);

function processes(signals: number[], text: string) {
  const input = Promise.withResolvers<Buffer>();
  const received: Buffer[] = [];
  return {
    list: () => ({
      processes: [{ pid: 7, tag: `tag${text}`, config: { cmd: `sh${text}`, args: [`-c${text}`] } }],
    }),
    /** `echo` writes its arguments, `cat` its input, `fail` exits with 3, `signal` ends with a status, `refuse` is an error. */
    async *start({ process }: { process?: { cmd: string; args: string[] } | undefined }) {
      const { cmd = '', args = [] } = process ?? {};
      if (cmd === 'refuse') throw new ConnectError(`cannot start${text}`, Code.InvalidArgument);
      yield start;
      if (cmd === 'echo') yield output('stdout', `${args.join(' ')}\n`);
      if (cmd === 'cat') yield output('stdout', (await input.promise).toString());
      if (cmd === 'fail') yield output('stderr', 'no\n');
      if (cmd === 'signal') yield endBySignal(args[0] ?? '');
      yield end(cmd === 'fail' ? 3 : 0);
    },
    async *connect() {
      yield start;
      yield output('stdout', 'attached\n');
      yield end(4);
    },
    sendInput({ input: sent }: { input?: { input: { value?: Uint8Array | undefined } } | undefined }) {
      received.push(Buffer.from(sent?.input.value ?? []));
      return {};
    },
    closeStdin() {
      input.resolve(Buffer.concat(received));
      return {};
    },
    sendSignal({ signal }: { signal: number }) {
      if (signal !== 9 && signal !== 15) throw new ConnectError('invalid signal', Code.InvalidArgument);
      signals.push(signal);
      return {};
    },
  };
}

function entryOf(path: string, content: string | null): EntryInfo {
  return create(EntryInfoSchema, {
    name: path.split('/').at(-1) ?? '',
    path,
    type: content === null ? FileType.DIRECTORY : FileType.FILE,
    size: BigInt(Buffer.byteLength(content ?? '')),
    mode: content === null ? 0o755 : 0o644,
    permissions: content === null ? 'drwxr-xr-x' : '-rw-r--r--',
    owner: 'user',
    group: 'user',
    modifiedTime: { seconds: 1_700_000_000n, nanos: 0 },
  });
}

function files(tree: StubTree, uploads: ReadonlyMap<string, Buffer>, hostileNames: readonly string[]) {
  const contentOf = (path: string) => uploads.get(path)?.toString() ?? tree[path];
  const missing = (path: string) => new ConnectError(`path '${path}' does not exist`, Code.NotFound);
  return {
    stat({ path }: { path: string }) {
      const content = path === '/list' ? null : contentOf(path);
      if (content === undefined) throw missing(path);
      return { entry: entryOf(path, content) };
    },
    listDir({ path }: { path: string }) {
      if (path === '/list')
        return { entries: hostileNames.map((name) => ({ ...entryOf('/list/x', 'evil'), name })) };
      if (contentOf(path) !== null) throw missing(path);
      const below = Object.keys(tree).filter((each) => each.slice(0, each.lastIndexOf('/')) === path);
      return { entries: below.map((each) => entryOf(each, tree[each] ?? null)) };
    },
    makeDir: ({ path }: { path: string }) => ({ entry: entryOf(path, null) }),
    move: () => ({}),
    remove: () => ({}),
    async *watchDir() {
      yield create(WatchDirResponseSchema, { event: { case: 'start', value: {} } });
      for (const told of [
        { name: 'new.txt', type: EventType.CREATE },
        { name: '\x1b]0;title\x07', type: EventType.WRITE },
      ])
        yield create(WatchDirResponseSchema, { event: { case: 'filesystem', value: told } });
    },
  };
}

/** Like a plain server: no archives, no conditions, no ETag. */
async function transfer(
  request: IncomingMessage,
  response: ServerResponse,
  url: URL,
  tree: StubTree,
  uploads: Map<string, Buffer>,
): Promise<void> {
  const path = url.searchParams.get('path') ?? '';
  if (request.method === 'POST') {
    const pieces: Buffer[] = [];
    for await (const piece of request) pieces.push(piece);
    const isRaw = request.headers['content-type'] === 'application/octet-stream';
    if (isRaw) uploads.set(path, Buffer.concat(pieces));
    response.writeHead(isRaw ? 200 : 400, { 'content-type': 'application/json' }).end('[]');
    return;
  }
  // Every file of the list that is hostile has this content.
  const content = path.startsWith('/list/') ? 'evil' : (uploads.get(path) ?? tree[path]);
  if (content == null) {
    response.writeHead(404, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ code: 404, message: `path '${path}' does not exist` }));
  } else response.writeHead(200, { 'content-length': Buffer.byteLength(content) }).end(content);
}
