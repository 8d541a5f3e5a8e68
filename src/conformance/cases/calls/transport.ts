import { strict as assert } from 'node:assert';
import { gunzipSync, gzipSync, inflateSync } from 'node:zlib';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { Code } from '@connectrpc/connect';
import { StatRequestSchema, StatResponseSchema } from '../../../gen/filesystem/filesystem_pb.js';
import { StartRequestSchema, StartResponseSchema } from '../../../gen/process/process_pb.js';
import { section } from '../../suite/cases.ts';
import { jsonOf, refused, type TestedDaemon } from '../../suite/daemon.ts';
import { byPid } from '../../suite/transcript.ts';
import { type Answer, frame, framesOf } from '../../suite/wire.ts';
import { helloRequest, postTyped, postUnary, START_PATH, STAT_PATH } from './rpc-calls.ts';

const LIST = '/process.Process/List';
const END_OF_STREAM = 2;
const TRAILERS = 0x80;
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

async function connectStream(daemon: TestedDaemon): Promise<void> {
  const body = frame(JSON.stringify(helloRequest(daemon)));
  const answer = await postTyped(daemon, START_PATH, 'application/connect+json', body, PLAIN);
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

async function binaryStream(daemon: TestedDaemon, type: string, lastFlags: number): Promise<Buffer> {
  const message = toBinary(StartRequestSchema, create(StartRequestSchema, helloRequest(daemon)));
  const answer = await postTyped(daemon, START_PATH, type, frame(message), { ...PLAIN, 'x-grpc-web': '1' });
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
    const answer = await postUnary(daemon, STAT_PATH, { path }, PLAIN);
    const { entry } = jsonOf<{ entry: Record<string, unknown> }>(answer, 200);
    assert.match(String(answer.headers['content-type']), /^application\/json\b/);
    // int64 is a text, an enum a name, a timestamp RFC 3339.
    assert.deepEqual([entry.name, entry.size, entry.type], ['five', '5', 'FILE_TYPE_FILE']);
    assert.match(String(entry.modifiedTime), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/);
  },
  'a unary call in binary': async (daemon) => {
    const path = await daemon.makeDir();
    const message = toBinary(StatRequestSchema, create(StatRequestSchema, { path }));
    const answer = await postTyped(daemon, STAT_PATH, 'application/proto', message, PLAIN);
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
    const answer = await postTyped(daemon, STAT_PATH, 'application/grpc-web+proto', frame(message), {
      'x-grpc-web': '1',
    });
    assert.equal(answer.status, 200);
    const trailers = answer.body.length > 0 ? String(framesOf(answer.body).at(-1)?.data) : '';
    const status = answer.headers['grpc-status'] ?? /^grpc-status: ?(\d+)/im.exec(trailers)?.[1];
    assert.equal(Number(status), Code.NotFound);
  },
  'a unary error is the status, code and message of the protocol': async (daemon) => {
    const answer = await postUnary(daemon, STAT_PATH, { path: daemon.at('none') }, PLAIN);
    assert.equal(answer.status, 404);
    assert.match(String(answer.headers['content-type']), /^application\/json\b/);
    connectError(answer, 'not_found', /./);
  },
  'an error of a stream is in its last frame, or a status': async (daemon) => {
    const body = frame(JSON.stringify({ process: { tag: 'conformance-nobody' } }));
    const answer = await postTyped(
      daemon,
      '/process.Process/Connect',
      'application/connect+json',
      body,
      PLAIN,
    );
    assert.deepEqual(streamError(answer), {
      code: 'not_found',
      message: 'process with tag conformance-nobody not found',
    });
  },
  'another version of the protocol is refused, by unary calls and by streams': async (daemon) => {
    const other = { 'connect-protocol-version': '2' };
    connectError(await postUnary(daemon, LIST, {}, other), 'invalid_argument', /version/i);
    const body = frame(JSON.stringify(helloRequest(daemon)));
    const { code, message } = streamError(
      await postTyped(daemon, START_PATH, 'application/connect+json', body, other),
    );
    assert.equal(code, 'invalid_argument');
    assert.match(String(message), /version/i);
  },
  'JSON: the filesystem service names a property that it does not know': async (daemon) => {
    connectError(
      await postUnary(daemon, STAT_PATH, { path: '/', sideways: 1 }),
      'invalid_argument',
      /sideways/,
    );
  },
  'JSON: the process service ignores properties that it does not know': async (daemon) => {
    jsonOf(await postUnary(daemon, LIST, { sideways: 1 }), 200);
    const body = frame(JSON.stringify({ ...helloRequest(daemon), sideways: { up: 1 } }));
    const answer = await postTyped(daemon, START_PATH, 'application/connect+json', body, PLAIN);
    assert.deepEqual(streamError(answer), {});
  },
  'JSON: an enum may be a number': async (daemon) => {
    const sleeping = await daemon.start({ process: { cmd: 'sleep', args: ['100'], cwd: '/' } });
    const message = { process: { pid: sleeping.pid }, signal: 15 };
    jsonOf(await postUnary(daemon, '/process.Process/SendSignal', message), 200);
    assert.equal((await sleeping.ended).end?.status, 'signal: terminated');
  },
  'JSON: names of fields may be those of the proto file too': async (daemon) => {
    const path = await daemon.makeDir();
    const created = await postUnary(daemon, '/filesystem.Filesystem/CreateWatcher', {
      path,
      include_entry: true,
    });
    const { watcherId } = jsonOf<{ watcherId: string }>(created, 200);
    jsonOf(await postUnary(daemon, '/filesystem.Filesystem/RemoveWatcher', { watcher_id: watcherId }), 200);
  },
  'a message that is no JSON, or no message, is invalid_argument': async (daemon) => {
    connectError(await postTyped(daemon, STAT_PATH, 'application/json', '{"path":'), 'invalid_argument', /./);
    connectError(await postUnary(daemon, STAT_PATH, { path: 7 }), 'invalid_argument', /./);
    const latin1 = Buffer.from('{"path":"/\xe9"}', 'latin1');
    connectError(
      await postTyped(daemon, STAT_PATH, 'application/json', latin1),
      'invalid_argument',
      /utf-?8/i,
    );
  },
  'a stream whose first frame is torn is refused': async (daemon) => {
    const torn = frame(JSON.stringify(helloRequest(daemon))).subarray(0, -1);
    const answer = await postTyped(daemon, START_PATH, 'application/connect+json', torn, PLAIN);
    assert.equal(streamError(answer).code, 'invalid_argument');
  },
  'an answer is gzip, deflate or plain when the client takes these': async (daemon) => {
    const content = 'x'.repeat(100);
    for (let file = 0; file < 30; file += 1) await daemon.upload(daemon.at(`${file}-${content}`));
    const plain = await postUnary(daemon, '/filesystem.Filesystem/ListDir', { path: daemon.directory });
    const headers = { 'accept-encoding': 'gzip, deflate' };
    const { headers: got, body } = await postUnary(
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
    const answer = await postTyped(
      daemon,
      STAT_PATH,
      'application/json',
      gzipSync(JSON.stringify({ path })),
      headers,
    );
    assert.equal(jsonOf<{ entry: { path: string } }>(answer, 200).entry.path, path);
    const tooShort = gzipSync(JSON.stringify({ path })).subarray(0, -4);
    connectError(
      await postTyped(daemon, STAT_PATH, 'application/json', tooShort, headers),
      'invalid_argument',
      /./,
    );
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
});
