import { strict as assert } from 'node:assert';
import { randomBytes } from 'node:crypto';
import { Code } from '@connectrpc/connect';
import { EndReason, type Signal, SignalScope } from '../../../gen/process/process_pb.js';
import { type Check, section } from '../../suite/cases.ts';
import { jsonOf, refused, type TestedDaemon, until } from '../../suite/daemon.ts';
import { offered } from '../../suite/offered.ts';
import { Running, sh } from '../../suite/running.ts';
import { byPid } from '../../suite/transcript.ts';

const extension = (check: Check) => offered(null, check);

/** Numbers as lines, more than is sent at once. */
const LINES = 50_000;
const COUNT = `i=0; while [ $i -lt ${LINES} ]; do echo $i; i=$((i + 1)); done`;
const COUNTED = Array.from({ length: LINES }, (_, i) => `${i}\n`).join('');

const resume: Check = async (daemon) => {
  const { pid, ended } = await daemon.start({ process: sh(COUNT) });
  await ended;
  for (const at of [0, 1, 4711, COUNTED.length - 1, COUNTED.length]) {
    const again = daemon.process.connect({ process: byPid(pid), resumeFrom: { stdout: BigInt(at) } });
    assert.equal(String((await (await Running.of(again)).ended).stdout), COUNTED.slice(at), `from ${at}`);
  }
  const beyond = daemon.process.connect({
    process: byPid(pid),
    resumeFrom: { stdout: BigInt(COUNTED.length + 1) },
  });
  await refused(
    Running.of(beyond).then(({ ended: end }) => end),
    [Code.InvalidArgument, Code.OutOfRange],
  );
};

const joinScreen: Check = async (daemon) => {
  const script = "trap 'echo drawn' WINCH; printf '\\033[?1049h'; echo up; while :; do sleep 0.1; done";
  const running = await daemon.start({ process: sh(script), pty: { size: { cols: 80, rows: 24 } } });
  await running.wrote('up');
  const joined = await Running.of(daemon.process.connect({ process: byPid(running.pid), screen: true }));
  await joined.wrote('drawn');
  assert.equal(joined.output.startsWith('\x1b[?1049h'), true, 'the modes come first');
  const piped = await daemon.start({ process: sh('sleep 1000') });
  await refused(
    Running.of(daemon.process.connect({ process: byPid(piped.pid), screen: true })),
    Code.FailedPrecondition,
  );
  for (const { pid } of [running, piped]) await daemon.process.sendSignal({ process: byPid(pid), signal: 9 });
  await running.ended;
  await joined.ended;
};

const tar = (daemon: TestedDaemon, path: string, format: string) =>
  daemon.rest('GET', '/files', { query: { path, format } });

export const EXTENSIONS = section('+', 'Extensions (docs/extensions.md)', {
  'Connect with resume_from: exactly the bytes from there on': extension(resume),
  'Connect with screen: the modes of the terminal, and what the program draws again': extension(joinScreen),
  'Start with a start_id starts once': extension(async (daemon) => {
    const flag = `${await daemon.makeDir()}/runs`;
    const startId = randomBytes(8).toString('hex');
    const process = sh(`echo ran >>'${flag}'; echo out`);
    for (let times = 0; times < 2; times += 1) {
      const { stdout } = await (await daemon.start({ process, startId })).ended;
      assert.equal(String(stdout), 'out\n');
    }
    assert.equal(String(await daemon.download(flag)), 'ran\n');
    await refused(daemon.start({ process: { cmd: 'true', cwd: '/' }, startId }), Code.AlreadyExists);
  }),
  'SendSignal by number': extension(async (daemon) => {
    const running = await daemon.start({
      process: sh("trap 'echo usr1; exit 5' USR1; echo up; while :; do sleep 0.1; done"),
    });
    await running.wrote('up');
    await daemon.process.sendSignal({ process: byPid(running.pid), signal: 10 as Signal });
    assert.equal((await running.ended).end?.exitCode, 5);
  }),
  'SendSignal to the whole tree': extension(async (daemon) => {
    const script = 'setsid sleep 1000 & echo "child $!."; wait';
    const running = await daemon.start({ process: sh(script) });
    await running.wrote('.');
    const scope = SignalScope.TREE;
    await daemon.process.sendSignal({ process: byPid(running.pid), signal: 9, scope });
    assert.equal((await running.ended).end?.status, 'signal: killed');
    const child = Number(/child (\d+)/.exec(running.output)?.[1]);
    const alive = `grep -q '^State:[[:space:]]*[RSDT]' /proc/${child}/status 2>/dev/null && echo yes || echo no`;
    await until(async () => (await daemon.shell(alive)) === 'no');
  }),
  'the end tells why, and what it took': extension(async (daemon) => {
    const { pid, ended } = await daemon.start({ process: sh('kill -USR1 $$') });
    await ended;
    for await (const { event } of daemon.process.connect({ process: byPid(pid) })) {
      if (event?.event.case !== 'end') continue;
      const { reason, signal, usage } = event.event.value;
      assert.deepEqual([reason, signal], [EndReason.SIGNALED, 'SIGUSR1']);
      assert(usage);
    }
  }),
  'a directory as an archive, and back': extension(async (daemon) => {
    await daemon.upload(daemon.at('d', 'e', 'file'), 'content');
    await daemon.shell(`cd '${daemon.at('d')}' && ln -s e/file link`);
    for (const [format, type] of [
      ['tar', 'application/x-tar'],
      ['tar.gz', 'application/gzip'],
    ] as const) {
      const { status, body } = await tar(daemon, daemon.at('d'), format);
      assert.equal(status, 200);
      const path = daemon.at(`copy-${format}`);
      const call = { query: { path }, headers: { 'content-type': type }, body };
      const { files, links } = jsonOf(await daemon.rest('POST', '/files', call), 200);
      assert.deepEqual([files, links], [1, 1]);
      assert.equal(String(await daemon.download(`${path}/link`)), 'content');
    }
  }),
  'a digest that does not fit is 400, and nothing is replaced': extension(async (daemon) => {
    const path = daemon.at('file');
    await daemon.upload(path, 'before');
    const headers = {
      'content-type': 'application/octet-stream',
      'content-digest': `sha-256=:${'A'.repeat(43)}=:`,
    };
    const { status } = await daemon.rest('POST', '/files', { query: { path }, headers, body: 'after' });
    assert.deepEqual([status, String(await daemon.download(path))], [400, 'before']);
  }),
  'an upload appends, writes from an offset, and sets the mode': extension(async (daemon) => {
    const path = daemon.at('file');
    const headers = { 'content-type': 'application/octet-stream' };
    const send = async (query: Record<string, string>, body: string) =>
      (await daemon.rest('POST', '/files', { query: { path, ...query }, headers, body })).status;
    const statuses = [
      await send({ append: 'true' }, 'one'),
      await send({ append: 'true' }, 'two'),
      await send({ offset: '1', mode: '0750' }, 'N'),
    ];
    assert.deepEqual([statuses, String(await daemon.download(path))], [[200, 200, 200], 'oNetwo']);
    assert.equal((await daemon.stat(path)).mode, 0o750);
    const ranged = { ...headers, 'content-range': 'bytes 0-1/2' };
    const { status } = await daemon.rest('POST', '/files', { query: { path }, headers: ranged, body: 'xx' });
    assert.equal(status, 400);
  }),
  'an upload keeps its conditions': extension(async (daemon) => {
    const path = daemon.at('file');
    const send = async (condition: Record<string, string>, body: string) => {
      const headers = { 'content-type': 'application/octet-stream', ...condition };
      return (await daemon.rest('POST', '/files', { query: { path }, headers, body })).status;
    };
    assert.deepEqual(
      [await send({ 'if-none-match': '*' }, 'a'), await send({ 'if-none-match': '*' }, 'b')],
      [200, 412],
    );
    const { etag } = (await daemon.rest('GET', '/files', { query: { path } })).headers;
    const condition = { 'if-match': String(etag) };
    assert.deepEqual([await send(condition, 'cc'), await send(condition, 'd')], [200, 412]);
    assert.equal(String(await daemon.download(path)), 'cc');
  }),
  'GET /health?verbose and GET /ports': extension(async (daemon) => {
    jsonOf(await daemon.rest('GET', '/health', { query: { verbose: '' } }), 200);
    assert(Array.isArray(jsonOf(await daemon.rest('GET', '/ports'), 200).ports));
  }),
});
