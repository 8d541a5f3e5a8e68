import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connectTo, transcribe } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import type { LogLine } from '../../support/programs/log-lines.ts';
import { DAEMON_PROGRAM, daemonCommand } from '../../support/programs/programs.ts';

/** Injects faults into functions that List by tag and the metrics use, and holds up a collapse until SIGWINCH. */
const FAULTS = `
import fs from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
Array.prototype.findLast = () => { throw new Error('a fault in findLast'); };
fs.statfs = async () => { throw new Error('a fault in statfs'); };
const { readFile } = fs;
const goOn = new Promise((resolve) => process.once('SIGWINCH', resolve));
fs.readFile = async (path, ...others) => {
  if (String(path).includes('transparent_hugepage')) await goOn;
  return readFile(path, ...others);
};
syncBuiltinESMExports();
`;

describe('the log has the reason of a failure', () => {
  let daemon: TestDaemon;
  beforeAll(async () => {
    const fault = `data:text/javascript,${encodeURIComponent(FAULTS)}`;
    daemon = await startDaemon({ command: [process.execPath, '--import', fault, DAEMON_PROGRAM] });
  });
  afterAll(() => daemon[Symbol.asyncDispose]());

  /** Makes a call; waits for its log line. */
  async function lineOf(path: string, init: RequestInit): Promise<LogLine> {
    const before = daemon.log.length;
    await (await fetch(daemon.url + path, init)).arrayBuffer();
    const told = () => daemon.log.slice(before).find(({ msg }) => msg === 'operation');
    await expect.poll(told).toBeDefined();
    return told() as LogLine;
  }

  const json = { 'content-type': 'application/json' };
  const post = (body: string | Buffer<ArrayBuffer>, headers: Record<string, string> = json) => ({
    method: 'POST',
    body,
    headers,
  });
  const envelope = (text: string) => `\0\0\0\0${String.fromCharCode(text.length)}${text}`;

  test('of a unary call', async () => {
    const line = await lineOf('/filesystem.Filesystem/Stat', post('{"path":"/s3cret"}'));
    expect(line).toMatchObject({ level: 30, status: 404, code: 'not_found' });
    expect(line.reason).toMatch(/^[^']+'…'[^']*$|^[^'"/]+$/);
    expect(line).not.toHaveProperty('err');
  });

  test.each([
    ['/process.Process/StreamInput', 'application/connect+json', '{"start":'],
    ['/process.Process/List', 'application/grpc-web+json', '{"start":'],
    ['/filesystem.Filesystem/Stat', 'application/grpc-web+json', '{"sideways":1}'],
  ])('of a message that is refused while it is received: %s as %s', async (path, type, text) => {
    const line = await lineOf(path, post(envelope(text), { 'content-type': type }));
    expect(line).toMatchObject({
      level: 30,
      operation: `POST ${path}`,
      status: 200,
      bytes: expect.any(Number),
    });
    expect(daemon.log.filter(({ msg }) => msg.startsWith('unexpected error'))).toEqual([]);
  });

  test('of a stream, whose status is 200', async () => {
    const start = envelope('{"process":{"cmd":"/s3cret"}}');
    const line = await lineOf(
      '/process.Process/Start',
      post(start, { 'content-type': 'application/connect+json' }),
    );
    expect(line).toMatchObject({
      level: 30,
      status: 200,
      code: 'not_found',
      reason: expect.stringMatching(/'…'.*ENOENT/),
    });
  });

  test('of a stream in a version of the protocol that is refused', async () => {
    const headers = { 'content-type': 'application/connect+json', 'connect-protocol-version': '2' };
    const line = await lineOf('/process.Process/Start', post(envelope('{}'), headers));
    expect(line).toMatchObject({ code: 'invalid_argument', reason: expect.stringContaining('version') });
  });

  test('a call that connect-node serves', async () => {
    const headers = { ...json, 'content-encoding': 'gzip' };
    const line = await lineOf('/filesystem.Filesystem/Stat', post(gzipSync('{"path":"/s3cret"}'), headers));
    expect(line).toMatchObject({ level: 30, status: 404, code: 'not_found', reason: expect.any(String) });
  });

  test('of calls with a query, which Fastify serves; one that is served has no reason', async () => {
    const [stat, start] = ['/filesystem.Filesystem/Stat?1', '/process.Process/Start?1'];
    const unary = await lineOf(stat, post('{"path":"/s3cret"}'));
    expect(unary).toMatchObject({ status: 404, code: 'not_found', reason: expect.any(String) });
    const stream = { 'content-type': 'application/connect+json' };
    const line = await lineOf(start, post(envelope('{"process":{"cmd":"/s3cret"}}'), stream));
    expect(line).toMatchObject({ status: 200, code: 'not_found', reason: expect.stringContaining('ENOENT') });
    const served = await lineOf(stat, post('{"path":"/"}'));
    expect(served).toMatchObject({ status: 200 });
    for (const member of ['code', 'reason']) expect(served).not.toHaveProperty(member);
  });

  test('of a REST operation', async () => {
    const line = await lineOf('/files?path=/s3cret', {});
    expect(line).toMatchObject({ level: 30, status: 404, reason: "path '…' does not exist" });
    const refused = await lineOf('/freeze?mode=s3cret', post(''));
    expect(refused).toMatchObject({
      status: 400,
      reason: expect.stringMatching(/^mode must be one of .*'…'$/),
    });
  });

  test('without any part of the request', async () => {
    for (const body of [
      '{"path":"s3cret',
      '{"path": s3cret}',
      '{"path": 7777777}',
      '{"s3cret": 1}',
      '"it\'s s3cret" x',
    ]) {
      const line = await lineOf('/filesystem.Filesystem/Stat', post(body));
      expect(line).toMatchObject({
        code: 'invalid_argument',
        reason: expect.stringMatching(/^cannot decode/),
      });
      expect(JSON.stringify(line)).not.toMatch(/s3cret|7777777/);
    }
    for (const tag of [`s3cret' "s3cret`, `"s3cret`]) {
      const list = await lineOf(
        '/filesystem.Filesystem/ListDir',
        post(JSON.stringify({ path: `/a/${tag}` })),
      );
      expect(JSON.stringify(list)).not.toContain('s3cret');
    }
  });

  test('with the stack of an unexpected error', async () => {
    const kill = '{"process":{"tag":"a"},"signal":"SIGNAL_SIGKILL"}';
    const rpc = await lineOf('/process.Process/SendSignal', post(kill));
    expect(rpc).toMatchObject({ level: 50, status: 500, code: 'internal', reason: 'a fault in findLast' });
    expect(rpc.err).toMatchObject({ stack: expect.stringMatching(/^Error: a fault in findLast\n +at /) });
    const stream = await lineOf(
      '/process.Process/Connect',
      post(envelope('{"process":{"tag":"a"}}'), { 'content-type': 'application/connect+json' }),
    );
    expect(stream).toMatchObject({ level: 50, status: 200, code: 'internal', reason: 'a fault in findLast' });
    expect(stream.err).toMatchObject({ stack: expect.stringContaining('at ') });
    const rest = await lineOf('/metrics', {});
    expect(rest).toMatchObject({ level: 50, status: 500, reason: 'a fault in statfs' });
    expect(rest.err).toMatchObject({ stack: expect.stringMatching(/^Error: a fault in statfs\n +at /) });
  });

  test('as a warning when the daemon is busy', async () => {
    const before = daemon.log.length;
    const collapse = () => fetch(`${daemon.url}/collapse`, { method: 'POST' });
    const calls = [collapse(), collapse()];
    await Promise.race(calls);
    process.kill(daemon.pid, 'SIGWINCH');
    const answers = await Promise.all(calls);
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 503]);
    const told = () => daemon.log.slice(before).filter(({ status }) => status === 503);
    await expect.poll(told).toHaveLength(1);
    expect(told()).toEqual([
      expect.objectContaining({ level: 40, reason: 'cannot collapse now: another collapse is under way' }),
    ]);
  });
});

test('a start fails at nothing', async () => {
  await using daemon = await startDaemon();
  const warnings = daemon.log.filter(({ level }) => Number(level) > 30).map(({ msg }) => msg);
  // What this machine lacks is told; `cannot` would be a fault.
  expect(warnings.filter((msg) => msg.startsWith('cannot') && !msg.includes('out-of-memory'))).toEqual([]);
});

test('at debug, services tell what they do, without names; at info they do not', async () => {
  needs('root');
  await using daemon = await startDaemon({ args: ['--log-level=debug'] });
  await using quiet = await startDaemon();
  for (const { url } of [daemon, quiet]) {
    await fetch(`${url}/files?path=/tmp/s3cret-${process.pid}`, {
      ...{ method: 'POST', body: 's3cret', headers: { 'content-type': 'application/octet-stream' } },
    });
    const { process: rpc, filesystem } = connectTo(url);
    await filesystem.remove({ path: `/tmp/s3cret-${process.pid}` });
    await transcribe(rpc.start({ process: { cmd: 'echo', args: ['s3cret'] } }));
    const { watcherId } = await filesystem.createWatcher({ path: '/tmp' });
    await filesystem.removeWatcher({ watcherId });
    await fetch(`${url}/init`, { method: 'POST', body: '{"envVars":{"A":"s3cret"}}' });
    await fetch(`${url}/collapse`, { method: 'POST' });
    await fetch(`${url}/freeze?maxWaitMs=1000`, { method: 'POST' });
    await fetch(`${url}/unfreeze`, { method: 'POST' });
  }
  const services = ({ log }: TestDaemon) => new Set(log.flatMap(({ service }) => service ?? []));
  await expect
    .poll(() => [...services(daemon)])
    .toEqual(expect.arrayContaining(['files', 'process', 'watch', 'init', 'collapse', 'freeze']));
  expect(JSON.stringify(daemon.log)).not.toContain('s3cret');
  expect(services(quiet)).toEqual(new Set());
});

describe('the log tells who asked for what', () => {
  let daemon: TestDaemon;
  beforeAll(async () => {
    daemon = await startDaemon();
  });
  afterAll(() => daemon[Symbol.asyncDispose]());

  const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
  const STAT = '/filesystem.Filesystem/Stat';

  async function answerAndLine(path: string, init: RequestInit): Promise<[Response, LogLine]> {
    const before = daemon.log.length;
    const response = await fetch(daemon.url + path, init);
    await response.arrayBuffer();
    const told = () => daemon.log.slice(before).find(({ msg }) => msg === 'operation');
    await expect.poll(told).toBeDefined();
    return [response, told() as LogLine];
  }

  const stat = (headers: Record<string, string>, query = '') => {
    const all = { 'content-type': 'application/json', ...headers };
    return answerAndLine(STAT + query, { method: 'POST', body: '{"path":"/etc"}', headers: all });
  };

  // With a query, a request is left to Fastify.
  test.each(['', '?'])('the ids of a request are in its answer and its line; query %s', async (query) => {
    const traceparent = `00-${TRACE}-00f067aa0ba902b7-01`;
    const authorization = `Basic ${Buffer.from('root:').toString('base64')}`;
    const [answer, line] = await stat({ 'x-request-id': 'a-1', traceparent, authorization }, query);
    expect([answer.headers.get('x-request-id'), answer.headers.get('traceparent')]).toEqual([
      'a-1',
      traceparent,
    ]);
    expect(line).toMatchObject({ status: 200, requestId: 'a-1', traceId: TRACE, user: 'root' });
    // The head, and an entry in JSON.
    expect(line.bytes).toBeGreaterThan(300);
  });

  test('ids in another form are ignored', async () => {
    for (const id of ['a b', '{"x":1}', 'x'.repeat(129)])
      for (const trace of [
        `00-${'0'.repeat(32)}-00f067aa0ba902b7-01`,
        `ff-${TRACE}-00f067aa0ba902b7-01`,
        's3cret',
      ]) {
        const [answer, line] = await stat({ 'x-request-id': id, traceparent: trace });
        expect([answer.headers.get('x-request-id'), answer.headers.get('traceparent')]).toEqual([null, null]);
        expect(line).not.toHaveProperty('requestId');
        expect(line).not.toHaveProperty('traceId');
      }
  });

  test('the user of a transfer', async () => {
    const [, line] = await answerAndLine('/files?path=/etc/hostname&username=root', {});
    expect(line).toMatchObject({ operation: 'GET /files', user: 'root' });
    const [, other] = await answerAndLine('/files?path=/etc/hostname&username=%0as3cret', {});
    expect(other).not.toHaveProperty('user');
  });

  test('which process an operation was about, and which path, by its hash', async () => {
    needs('root');
    // `printf %s /etc/hostname | sha256sum`
    const pathHash = '7b7e873d8246';
    const query = '?path=/etc/hostname';
    const body = '{"path":"/etc/../etc/hostname"}';
    const type = { 'content-type': 'application/json' };
    for (const [path, init] of [
      [STAT, { method: 'POST', body, headers: type }],
      // By connect-node.
      [STAT, { method: 'POST', body: gzipSync(body), headers: { ...type, 'content-encoding': 'gzip' } }],
      [`/files${query}`, {}],
      [`/files${query}`, { headers: { range: 'bytes=0-0' } }],
      [`/files${query}`, { headers: { range: 'bytes=9999999-' } }],
    ] as const) {
      const [, line] = await answerAndLine(path, init);
      expect(line).toMatchObject({ pathHash });
      expect(line).not.toHaveProperty('pid');
      expect(JSON.stringify(line)).not.toContain('hostname');
    }
    const before = daemon.log.length;
    const { process: rpc } = connectTo(daemon.url);
    const start = { process: { cmd: 'cat' }, stdin: true };
    let pid = 0;
    await transcribe(rpc.start(start), (_event, context) => {
      if (pid === 0) void rpc.closeStdin({ process: { selector: { case: 'pid', value: context.pid } } });
      pid = context.pid;
    });
    const told = () => daemon.log.slice(before).filter(({ msg }) => msg === 'operation');
    await expect.poll(told).toHaveLength(2);
    expect(told().map((line) => line.pid)).toEqual([pid, pid]);
  });

  test('processes when they start and end, without arguments and environment', async () => {
    needs('root');
    const before = daemon.log.length;
    const { process: rpc } = connectTo(daemon.url);
    const start = { cmd: 'sh', args: ['-c', 'kill -TERM $$ # s3cret'], envs: { A: 's3cret' } };
    await transcribe(rpc.start({ process: start, tag: 't'.repeat(500) }));
    await transcribe(rpc.start({ process: { cmd: 'sh', args: ['-c', 'exit 3'] } }));
    const lines = () => daemon.log.slice(before).filter(({ msg }) => msg.startsWith('process '));
    await expect.poll(lines).toHaveLength(4);
    expect(lines()[0]).toMatchObject({ msg: 'process started', user: 'root', tag: 't'.repeat(128) });
    const [first, second] = lines().filter(({ msg }) => msg === 'process ended');
    expect(first).toMatchObject({
      ...{ pid: lines()[0]?.pid, user: 'root', reason: 'signaled', signal: 'SIGTERM' },
      ...{ userMs: expect.any(Number), systemMs: expect.any(Number) },
    });
    expect(second).toMatchObject({ reason: 'exited', exitCode: 3 });
    expect(JSON.stringify(daemon.log)).not.toContain('s3cret');
  });
});

test('arguments are in the log only when asked for: 4 KiB of them, and nothing that cannot be seen', async () => {
  needs('root');
  await using daemon = await startDaemon({ args: ['--log-arguments'] });
  const { process: rpc } = connectTo(daemon.url);
  const envs = { A: 's3cret' };
  const odd = ['\u001b[2J', 'a\nb', '\u0085\u202e', '\u{1f600}', ''];
  await transcribe(rpc.start({ process: { cmd: 'true', args: odd, envs } }));
  await transcribe(rpc.start({ process: { cmd: 'true', args: ['é'.repeat(60_000), 'next', 'last'] } }));
  const many = Array.from({ length: 10_000 }, () => '');
  await transcribe(rpc.start({ process: { cmd: 'true', args: many } }));
  const lines = () => daemon.log.filter(({ msg }) => msg === 'process started');
  await expect.poll(lines).toHaveLength(3);
  const [shown, long, empty] = lines();
  const seen = ['\\u{1b}[2J', 'a\\u{a}b', '\\u{85}\\u{202e}', '\u{1f600}', ''];
  expect(shown).toMatchObject({ command: ['true', ...seen] });
  expect(shown).not.toHaveProperty('cut');
  expect(long).toMatchObject({ cut: 3, command: ['true', expect.stringMatching(/^é{2000,2048}$/)] });
  expect(empty?.cut).toBeGreaterThan(5900);
  expect(JSON.stringify(empty).length).toBeLessThan(16_000);
  expect(JSON.stringify(daemon.log)).not.toContain('s3cret');
});

describe('under systemd', () => {
  /** As systemd starts it: JOURNAL_STREAM names the journal that is standard output. */
  const inJournal = (stream: string) =>
    startDaemon({
      args: ['--log-level=debug', '--no-cgroups'],
      command: [
        'sh',
        '-c',
        `exec 3>&1; JOURNAL_STREAM=${stream}; export JOURNAL_STREAM; exec "$@" 3>&-`,
        'sh',
        ...daemonCommand(),
      ],
    });

  test('lines have a priority when standard output is the journal', async () => {
    await using daemon = await inJournal('$(stat -L -c %d:%i /dev/fd/3)');
    await fetch(`${daemon.url}/health`);
    await connectTo(daemon.url).process.list({});
    expect(daemon.log.find(({ msg }) => msg === 'ready')).toMatchObject({ level: 30, priority: 6 });
    expect(daemon.log.find(({ msg }) => /cannot be frozen/.test(msg))).toMatchObject({
      level: 40,
      priority: 4,
    });
    const health = () => daemon.log.find(({ operation }) => operation === 'GET /health');
    await expect.poll(health).toMatchObject({ level: 20, priority: 7 });
  });

  test('lines have no priority when the journal is another stream', async () => {
    await using daemon = await inJournal('$(stat -L -c %d:%i /dev/null)');
    expect(daemon.log.find(({ msg }) => msg === 'ready')).not.toHaveProperty('priority');
  });
});
