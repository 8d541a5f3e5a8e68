import { strict as assert } from 'node:assert';
import { connect } from 'node:net';
import { connect as connectSecurely } from 'node:tls';
import { gunzipSync, gzipSync, inflateSync } from 'node:zlib';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { Code } from '@connectrpc/connect';
import { StatRequestSchema, StatResponseSchema } from '../../src/gen/filesystem/filesystem_pb.js';
import { StartRequestSchema, StartResponseSchema } from '../../src/gen/process/process_pb.js';
import { byPid } from '../support/clients/clients.ts';
import { section } from './cases.ts';
import { type Daemon, JSON_BODY, jsonOf, RAW, refused, refusedRest } from './daemon.ts';
import { sh } from './running.ts';
import { type Answer, frame, framesOf } from './wire.ts';

const STAT = '/filesystem.Filesystem/Stat';
const START = '/process.Process/Start';
const LIST = '/process.Process/List';
const END_OF_STREAM = 2;
const TRAILERS = 0x80;

const echo = (daemon: Daemon) => ({ process: sh('printf hello'), stdin: false, tag: daemon.run.tag });

const post = (daemon: Daemon, path: string, type: string, body: string | Uint8Array, headers = {}) =>
  daemon.rest('POST', path, { headers: { 'content-type': type, ...headers }, body });

const unary = (daemon: Daemon, path: string, message: unknown, headers = {}) =>
  post(daemon, path, 'application/json', JSON.stringify(message), headers);

const PLAIN = { 'connect-protocol-version': '1' };

/** The error of a unary call in Connect's JSON. */
function connectError(answer: Answer, code: string, message: RegExp): void {
  const error = JSON.parse(String(answer.body)) as { code: string; message: string };
  assert.equal(error.code, code, `the answer is ${answer.status}: ${answer.body}`);
  assert.match(error.message, message);
}

/** The error of a stream, whether it comes with a status or in the last frame. */
function streamError(answer: Answer): { code?: string; message?: string } {
  if (answer.status !== 200) return JSON.parse(String(answer.body));
  return JSON.parse(String(framesOf(answer.body).at(-1)?.data)).error ?? {};
}

/** What a daemon says to bytes that are not HTTP. */
function rawExchange(daemon: Daemon, bytes: string): Promise<string> {
  const { hostname, port, protocol } = daemon.run.url;
  const to = { host: hostname, port: Number(port || (protocol === 'https:' ? 443 : 80)) };
  const socket = protocol === 'https:' ? connectSecurely({ ...to, servername: hostname }) : connect(to);
  daemon.atEnd(async () => socket.destroy());
  return new Promise((resolve, reject) => {
    let text = '';
    socket.on('data', (chunk) => {
      text += chunk;
    });
    socket.on('error', reject);
    socket.on('end', () => resolve(text));
    socket.write(bytes);
  });
}

function parserError(text: string, status: number): void {
  const [head = '', body = ''] = text.split('\r\n\r\n');
  assert.match(head, new RegExp(`^HTTP/1.1 ${status} `));
  const headers = Object.fromEntries(
    head
      .split('\r\n')
      .slice(1)
      .map((line) => line.toLowerCase().split(': ')),
  );
  refusedRest({ status, headers, body: Buffer.from(body) }, status);
}

async function connectStream(daemon: Daemon): Promise<void> {
  const body = frame(JSON.stringify(echo(daemon)));
  const answer = await post(daemon, START, 'application/connect+json', body, PLAIN);
  assert.equal(answer.status, 200);
  assert.equal(answer.headers['content-type'], 'application/connect+json');
  const frames = framesOf(answer.body);
  const last = frames.pop();
  assert.equal(last?.flags, END_OF_STREAM);
  assert.equal(JSON.parse(String(last?.data)).error, undefined);
  const events = frames.map(({ data }) => JSON.parse(String(data)).event);
  assert.equal(typeof events[0].start.pid, 'number');
  assert.equal(events[1].data.stdout, Buffer.from('hello').toString('base64'));
  assert.equal(events.at(-1).end.exited, true);
}

async function binaryStream(daemon: Daemon, type: string, lastFlags: number): Promise<Buffer> {
  const message = toBinary(StartRequestSchema, create(StartRequestSchema, echo(daemon)));
  const answer = await post(daemon, START, type, frame(message), { ...PLAIN, 'x-grpc-web': '1' });
  assert.equal(answer.status, 200, String(answer.body));
  assert.equal(answer.headers['content-type'], type);
  const frames = framesOf(answer.body);
  const last = frames.pop();
  assert.equal(last?.flags, lastFlags);
  const kinds = frames.map(({ data }) => fromBinary(StartResponseSchema, data).event?.event.case);
  assert.deepEqual([kinds[0], kinds.at(-1)], ['start', 'end']);
  return last?.data ?? Buffer.alloc(0);
}

export const TRANSPORT = section('1', 'Transport', {
  'a unary call in JSON': async (daemon) => {
    const path = daemon.at('five');
    await daemon.upload(path, '12345');
    const answer = await unary(daemon, STAT, { path }, PLAIN);
    const { entry } = jsonOf<{ entry: Record<string, unknown> }>(answer, 200);
    assert.match(String(answer.headers['content-type']), /^application\/json\b/);
    // int64 is a text, an enum a name, a timestamp RFC 3339.
    assert.deepEqual([entry.name, entry.size, entry.type], ['five', '5', 'FILE_TYPE_FILE']);
    assert.match(String(entry.modifiedTime), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/);
  },
  'a unary call in binary': async (daemon) => {
    const path = await daemon.makeDir();
    const message = toBinary(StatRequestSchema, create(StatRequestSchema, { path }));
    const answer = await post(daemon, STAT, 'application/proto', message, PLAIN);
    assert.equal(answer.status, 200);
    assert.equal(answer.headers['content-type'], 'application/proto');
    assert.equal(fromBinary(StatResponseSchema, answer.body).entry?.path, path);
  },
  'a stream in JSON: frames, the last one with the flag of the end': connectStream,
  'a stream in binary: the same': async (daemon) => {
    const end = await binaryStream(daemon, 'application/connect+proto', END_OF_STREAM);
    assert.equal(JSON.parse(String(end)).error, undefined);
  },
  'gRPC-Web: a stream ends with the status 0 in a frame of trailers': async (daemon) => {
    const end = await binaryStream(daemon, 'application/grpc-web+proto', TRAILERS);
    assert.match(String(end), /^grpc-status: ?0/im);
  },
  'gRPC-Web: an error is a status and a message': async (daemon) => {
    const message = toBinary(StatRequestSchema, create(StatRequestSchema, { path: daemon.at('none') }));
    const answer = await post(daemon, STAT, 'application/grpc-web+proto', frame(message), {
      'x-grpc-web': '1',
    });
    assert.equal(answer.status, 200);
    const trailers = answer.body.length > 0 ? String(framesOf(answer.body).at(-1)?.data) : '';
    const status = answer.headers['grpc-status'] ?? /^grpc-status: ?(\d+)/im.exec(trailers)?.[1];
    assert.equal(Number(status), Code.NotFound);
  },
  'a unary error is the status, code and message of the protocol': async (daemon) => {
    const answer = await unary(daemon, STAT, { path: daemon.at('none') }, PLAIN);
    assert.equal(answer.status, 404);
    assert.match(String(answer.headers['content-type']), /^application\/json\b/);
    connectError(answer, 'not_found', /./);
  },
  'an error of a stream is in its last frame, or a status': async (daemon) => {
    const body = frame(JSON.stringify({ process: { tag: 'conformance-nobody' } }));
    const answer = await post(daemon, '/process.Process/Connect', 'application/connect+json', body, PLAIN);
    assert.deepEqual(streamError(answer), {
      code: 'not_found',
      message: 'process with tag conformance-nobody not found',
    });
  },
  'another version of the protocol is refused, by unary calls and by streams': async (daemon) => {
    const other = { 'connect-protocol-version': '2' };
    connectError(await unary(daemon, LIST, {}, other), 'invalid_argument', /version/i);
    const body = frame(JSON.stringify(echo(daemon)));
    const { code, message } = streamError(await post(daemon, START, 'application/connect+json', body, other));
    assert.equal(code, 'invalid_argument');
    assert.match(String(message), /version/i);
  },
  'JSON: the filesystem service names a property that it does not know': async (daemon) => {
    connectError(await unary(daemon, STAT, { path: '/', sideways: 1 }), 'invalid_argument', /sideways/);
  },
  'JSON: the process service ignores properties that it does not know': async (daemon) => {
    jsonOf(await unary(daemon, LIST, { sideways: 1 }), 200);
    const body = frame(JSON.stringify({ ...echo(daemon), sideways: { up: 1 } }));
    const answer = await post(daemon, START, 'application/connect+json', body, PLAIN);
    assert.deepEqual(streamError(answer), {});
  },
  'JSON: an enum may be a number': async (daemon) => {
    const sleeping = await daemon.start({ process: { cmd: 'sleep', args: ['100'], cwd: '/' } });
    const message = { process: { pid: sleeping.pid }, signal: 15 };
    jsonOf(await unary(daemon, '/process.Process/SendSignal', message), 200);
    assert.equal((await sleeping.ended).end?.status, 'signal: terminated');
  },
  'JSON: names of fields may be those of the proto file too': async (daemon) => {
    const path = await daemon.makeDir();
    const created = await unary(daemon, '/filesystem.Filesystem/CreateWatcher', {
      path,
      include_entry: true,
    });
    const { watcherId } = jsonOf<{ watcherId: string }>(created, 200);
    jsonOf(await unary(daemon, '/filesystem.Filesystem/RemoveWatcher', { watcher_id: watcherId }), 200);
  },
  'a message that is no JSON, or no message, is invalid_argument': async (daemon) => {
    connectError(await post(daemon, STAT, 'application/json', '{"path":'), 'invalid_argument', /./);
    connectError(await unary(daemon, STAT, { path: 7 }), 'invalid_argument', /./);
    const latin1 = Buffer.from('{"path":"/\xe9"}', 'latin1');
    connectError(await post(daemon, STAT, 'application/json', latin1), 'invalid_argument', /utf-?8/i);
  },
  'a stream whose first frame is torn is refused': async (daemon) => {
    const torn = frame(JSON.stringify(echo(daemon))).subarray(0, -1);
    const answer = await post(daemon, START, 'application/connect+json', torn, PLAIN);
    assert.equal(streamError(answer).code, 'invalid_argument');
  },
  'an answer is gzip, deflate or plain when the client takes these': async (daemon) => {
    const content = 'x'.repeat(100);
    for (let file = 0; file < 30; file += 1) await daemon.upload(daemon.at(`${file}-${content}`));
    const plain = await unary(daemon, '/filesystem.Filesystem/ListDir', { path: daemon.directory });
    const headers = { 'accept-encoding': 'gzip, deflate' };
    const { headers: got, body } = await unary(
      daemon,
      '/filesystem.Filesystem/ListDir',
      { path: daemon.directory },
      headers,
    );
    const coding = got['content-encoding'] ?? 'identity';
    const decode = { gzip: gunzipSync, deflate: inflateSync, identity: (bytes: Buffer) => bytes }[coding];
    assert(decode, `a coding that was asked for, not '${coding}'`);
    assert.deepEqual(JSON.parse(String(decode(body))), JSON.parse(String(plain.body)));
  },
  'a unary request may be compressed': async (daemon) => {
    const path = await daemon.makeDir();
    const headers = { 'content-encoding': 'gzip' };
    const answer = await post(daemon, STAT, 'application/json', gzipSync(JSON.stringify({ path })), headers);
    assert.equal(jsonOf<{ entry: { path: string } }>(answer, 200).entry.path, path);
    const tooShort = gzipSync(JSON.stringify({ path })).subarray(0, -4);
    connectError(await post(daemon, STAT, 'application/json', tooShort, headers), 'invalid_argument', /./);
  },
  'Connect-Timeout-Ms is the deadline of a unary call': async (daemon) => {
    // It never reads: the pipe is full some time, and what a daemon keeps beside it.
    const { pid } = await daemon.start({ process: { cmd: 'sleep', args: ['100'], cwd: '/' } });
    const input = { input: { case: 'stdin', value: new Uint8Array(4 * 1024 * 1024) } } as const;
    const fill = async () => {
      for (let pieces = 0; pieces < 16; pieces += 1)
        await daemon.process.sendInput(
          { process: byPid(pid), input },
          { headers: { 'connect-timeout-ms': '500' } },
        );
    };
    await refused(fill(), Code.DeadlineExceeded);
  },
  'CORS: any origin, method and header, for two hours; also with no token': async (daemon) => {
    const asks = {
      origin: 'https://example.com',
      'access-control-request-method': 'PUT',
      'access-control-request-headers': 'x-access-token, x-anything',
    };
    for (const path of ['/files', STAT]) {
      const { status, headers } = await daemon.send({ method: 'OPTIONS', path, headers: asks });
      assert.equal(Math.floor(status / 100), 2, `the preflight of ${path} is ${status}`);
      assert.match(String(headers['access-control-allow-origin']), /^(\*|https:\/\/example\.com)$/);
      const methods = String(headers['access-control-allow-methods']).split(/, ?/);
      for (const method of ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'])
        assert(methods.includes(method), method);
      assert.match(String(headers['access-control-allow-headers']), /\*|x-anything/i);
      assert.equal(headers['access-control-max-age'], '7200');
    }
  },
  'CORS: answers expose what clients read': async (daemon) => {
    const { headers } = await daemon.rest('GET', '/health', { headers: { origin: 'https://example.com' } });
    const exposed = String(headers['access-control-expose-headers']).toLowerCase().split(/, ?/);
    const wanted = ['grpc-status', 'grpc-message', 'location', 'cache-control', 'x-content-type-options'];
    for (const name of wanted) assert(exposed.includes(name), `${name} is exposed, not only ${exposed}`);
  },
  'a wrong method is 405 with Allow, for RPCs too': async (daemon) => {
    for (const [method, path, allowed] of [
      ['DELETE', '/health', 'GET'],
      ['PUT', '/files', 'POST'],
      ['GET', '/init', 'POST'],
      ['PUT', STAT, 'POST'],
      ['DELETE', START, 'POST'],
    ] as const) {
      const answer = await daemon.rest(method, path);
      assert.equal(answer.status, 405, `${method} ${path}`);
      assert(
        String(answer.headers.allow).split(/, ?/).includes(allowed),
        `${method} ${path}: ${answer.headers.allow}`,
      );
    }
  },
  'a wrong content type of an RPC is 415 that names the right ones, with Accept-Post': async (daemon) => {
    for (const path of [STAT, START]) {
      const answer = await post(daemon, path, 'text/plain', '{}');
      assert.equal(answer.status, 415);
      const right = path === STAT ? 'application/json' : 'application/connect+json';
      assert(String(answer.body).includes(right), String(answer.body));
      assert(String(answer.headers['accept-post']).includes(right), String(answer.headers['accept-post']));
    }
  },
  'an unknown path is 404 in the form of all errors': async (daemon) => {
    refusedRest(await daemon.rest('GET', '/conformance/nothing'), 404);
  },
  'errors of the HTTP parser have that form too': async (daemon) => {
    parserError(await rawExchange(daemon, 'no request at all\r\n\r\n'), 400);
    const huge = `GET /health HTTP/1.1\r\nhost: x\r\nx-huge: ${'x'.repeat(100_000)}\r\n\r\n`;
    parserError(await rawExchange(daemon, huge), 431);
  },
  'Cache-Control: no-store, but private, no-cache and nosniff for downloads': async (daemon) => {
    const path = daemon.at('file');
    const upload = await daemon.rest('POST', '/files', { query: { path }, headers: RAW, body: 'x' });
    const answers = {
      upload,
      health: await daemon.rest('GET', '/health'),
      metrics: await daemon.rest('GET', '/metrics'),
      envs: await daemon.rest('GET', '/envs'),
      preflight: await daemon.rest('OPTIONS', '/envs'),
      error: await daemon.rest('GET', '/conformance/nothing'),
      RPC: await unary(daemon, STAT, { path }),
      'failed RPC': await unary(daemon, STAT, { path: daemon.at('none') }),
      stream: await post(daemon, START, 'application/connect+json', frame(JSON.stringify(echo(daemon)))),
    };
    for (const [what, { headers }] of Object.entries(answers))
      assert.equal(headers['cache-control'], 'no-store', what);
    const { headers } = await daemon.rest('GET', '/files', { query: { path } });
    assert.equal(headers['cache-control'], 'private, no-cache');
    assert.equal(headers['x-content-type-options'], 'nosniff');
  },
  'a connection serves many requests': async (daemon) => {
    const text = (close: string) => `GET /health HTTP/1.1\r\nhost: x\r\n${close}\r\n`;
    const answer = await rawExchange(daemon, text('') + text('') + text('connection: close\r\n'));
    assert.equal(answer.match(/HTTP\/1\.1 204 /g)?.length, 3);
  },
  'a body with a length that is not one is refused': async (daemon) => {
    const bytes = `POST ${STAT} HTTP/1.1\r\nhost: x\r\ncontent-length: many\r\n\r\n`;
    parserError(await rawExchange(daemon, bytes), 400);
    assert.equal((await daemon.rest('GET', '/health', { headers: JSON_BODY })).status, 204);
  },
});
