import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connectTo } from '../../support/clients/clients.ts';
import { refusalOf, TestSocket, tokenProtocol } from '../../support/clients/websocket.ts';
import { needs } from '../../support/machine/needs.ts';
import { runs } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/* The WebSocket GET /terminal: a shell or a command, shared viewing, take-over, and offsets. */

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon[Symbol.asyncDispose]());

const open = (query: Record<string, string> = {}, options = {}) =>
  TestSocket.open(daemon.url, `/terminal?${new URLSearchParams({ cwd: '/', ...query })}`, options);

describe('a new terminal', () => {
  test('runs a shell, takes input in both forms, and has the size of the query', async () => {
    const terminal = await open({ cols: '101', rows: '31' });
    expect(await terminal.message('start')).toEqual({ type: 'start', pid: expect.any(Number), offset: 0 });
    terminal.send(Buffer.from('stty size\n'));
    await terminal.shows(/31 101/);
    terminal.send({ type: 'resize', cols: 77, rows: 22 });
    terminal.send({ type: 'input', data: 'stty size; tty; echo $TERM; exit 3\n' });
    await terminal.shows(/22 77[\s\S]*\/dev\/pts\/\d+[\s\S]*xterm-256color/);
    expect(await terminal.closed).toEqual({ code: 1000, reason: '' });
    expect(terminal.told.at(-1)).toMatchObject({
      ...{ type: 'end', exitCode: 3, exited: true, reason: 'exited', signal: null },
    });
  });

  test('runs a command line, which ends it', async () => {
    const terminal = await open({ cmd: 'echo "a  b" | tr a-z A-Z; kill -9 $$' });
    await terminal.closed;
    expect(terminal.text).toBe('A  B\r\n');
    expect(terminal.told.at(-1)).toMatchObject({ type: 'end', exitCode: -1, signal: 'SIGKILL' });
  });

  test('has the tag, the directory and the user of the query', async () => {
    needs('root');
    const terminal = await open({ cmd: 'pwd; id -un; sleep 1000', tag: 'mine', cwd: '/tmp', user: 'nobody' });
    await terminal.shows(/\/tmp\r\nnobody\r\n/);
    const { processes } = await connectTo(daemon.url).process.list({});
    expect(processes.find(({ tag }) => tag === 'mine')).toMatchObject({ pid: terminal.told[0]?.pid });
  });

  test('goes on when its client leaves', async () => {
    const terminal = await open({ cmd: 'echo here; sleep 1000' });
    const { pid } = await terminal.message('start');
    terminal.socket.close();
    expect((await terminal.closed).code).toBe(1005);
    expect(runs(Number(pid))).toBe(true);
  });

  test('whose clients leave while output comes has one line of each in the log, and no error', async () => {
    await using noisy = await startDaemon();
    const path = `/terminal?${new URLSearchParams({ cwd: '/', cmd: 'cat /dev/zero' })}`;
    for (let count = 0; count < 6; count++) {
      const terminal = await TestSocket.open(noisy.url, path);
      await until('output comes', () => terminal.length > 0);
      if (count % 2) terminal.socket.terminate();
      else terminal.socket.close();
      await terminal.closed;
    }
    const lines = () => noisy.log.filter(({ operation }) => operation === 'GET /terminal');
    await until('all have left', () => lines().length === 6);
    // Whether the daemon notices it by a frame, by the end of the connection, or by a write is a matter of chance.
    const seen = lines().map(({ level, err, code, reason }) => ({ level, err, code, reason }));
    expect(seen).toEqual(Array(6).fill({ level: 30, err: undefined, code: undefined, reason: undefined }));
  });

  test.each([
    [{ user: 'nobody-at-all' }, 4401, /nobody-at-all/],
    [{ cwd: '/none' }, 4400, /cwd '\/none' does not exist/],
    [{ cols: 'x' }, 4400, /cols must be a whole number/],
    [{ cols: '70000' }, 4400, /terminal size/],
    [{ process: '999999999' }, 4404, /process with pid 999999999 not found/],
    [{ process: 'none' }, 4404, /process with tag none not found/],
  ])('of %j is closed with %i', async (query, code, reason) => {
    const terminal = await open(query);
    const closed = await terminal.closed;
    expect(closed).toEqual({ code, reason: expect.stringMatching(reason) });
    expect(Buffer.byteLength(closed.reason)).toBeLessThanOrEqual(123);
  });

  test.each([
    'not json',
    '[]',
    '{"type":"paste"}',
    '{"type":"resize","cols":0}',
    '{"type":"input","data":5}',
  ])('is closed after the message %s, and its process goes on', async (message) => {
    const terminal = await open({ cmd: 'sleep 1000' });
    const { pid } = await terminal.message('start');
    terminal.send(message);
    expect((await terminal.closed).code).toBe(4400);
    expect(runs(Number(pid))).toBe(true);
  });
});

describe('a terminal of several clients', () => {
  test('is shown to all, from the offset of each', async () => {
    const first = await open({ cmd: 'echo one; read line; echo "got $line"; sleep 1000', tag: 'shared' });
    await first.shows(/one\r\n/);
    const all = await open({ process: 'shared', from: '0' });
    const some = await open({ process: String(first.told[0]?.pid), from: '3' });
    const late = await open({ process: 'shared' });
    expect(await late.message('start')).toEqual({ ...first.told[0], offset: 5 });
    all.send({ type: 'input', data: 'x\n' });
    for (const viewer of [first, all]) expect(await viewer.shows(/got x\r\n/)).toBe('one\r\nx\r\ngot x\r\n');
    expect(await some.shows(/got x\r\n/)).toBe('\r\nx\r\ngot x\r\n');
    expect(await late.shows(/got x\r\n/)).toBe('x\r\ngot x\r\n');
  });

  test('is taken over by one of them', async () => {
    const first = await open({ cmd: 'read line; echo "got $line"; sleep 1000', tag: 'taken' });
    await first.message('start');
    const second = await open({ process: 'taken', from: '0', takeover: 'true' });
    expect(await first.closed).toEqual({ code: 4409, reason: 'another client has taken over the terminal' });
    second.send({ type: 'input', data: 'mine\n' });
    await second.shows(/got mine/);
  });

  test('tells what is no longer kept', async () => {
    const first = await open({
      cmd: 'stty -opost; head -c 3000000 /dev/zero; echo done; sleep 1000',
      tag: 'long',
    });
    await first.shows(/done\n/);
    const again = await open({ process: 'long', from: '10' });
    const gap = await again.message('gap');
    expect(gap).toEqual({ type: 'gap', from: 10, to: expect.any(Number) });
    await again.shows(/done\n/);
    expect(Number(gap.to) + again.bytes.length).toBe(3_000_005);
    const beyond = await open({ process: 'long', from: '3000006' });
    expect((await beyond.closed).code).toBe(4400);
  });

  test('can be joined after the end, and that of a process on pipes cannot', async () => {
    const first = await open({ cmd: 'echo bye', tag: 'over' });
    await first.closed;
    const again = await open({ process: 'over', from: '0' });
    await again.closed;
    expect([again.text, again.told.at(-1)]).toEqual(['bye\r\n', first.told.at(-1)]);
    const { process } = connectTo(daemon.url);
    const stream = process.start({ process: { cmd: 'sleep', args: ['1000'] }, tag: 'pipes' });
    await stream[Symbol.asyncIterator]().next();
    expect(await (await open({ process: 'pipes' })).closed).toMatchObject({ code: 4412 });
  });
});

describe('the way in', () => {
  test('the token is a header, or a subprotocol', async () => {
    await using guarded = await startDaemon();
    const token = 'sécret / with+everything';
    const init = { method: 'POST', body: JSON.stringify({ accessToken: token }) };
    expect((await fetch(`${guarded.url}/init`, init)).status).toBe(204);
    const path = '/terminal?cmd=echo+in&cwd=/';
    for (const protocols of [[], ['envd.terminal'], ['envd.terminal', tokenProtocol('wrong')]])
      expect(await refusalOf(guarded.url, path, protocols)).toMatchObject({ status: 401 });
    const inQuery = `${path}&token=${encodeURIComponent(token)}&access_token=${encodeURIComponent(token)}`;
    expect((await refusalOf(guarded.url, inQuery)).status).toBe(401);
    const byProtocol = await TestSocket.open(guarded.url, path, {
      protocols: ['envd.terminal', tokenProtocol(token)],
    });
    // The token is not repeated.
    expect(byProtocol.socket.protocol).toBe('envd.terminal');
    await byProtocol.closed;
    const byHeader = await TestSocket.open(guarded.url, path, {
      headers: { 'x-access-token': Buffer.from(token).toString('latin1') },
    });
    await byHeader.closed;
    expect([byProtocol.text, byHeader.text]).toEqual(['in\r\n', 'in\r\n']);
    expect(JSON.stringify(guarded.log)).not.toContain('cret');
  });

  test("a browser's own WebSocket", async () => {
    const url = `${daemon.url.replace('http', 'ws')}/terminal?cmd=echo+hi&cwd=/`;
    const socket = new globalThis.WebSocket(url, ['envd.terminal']);
    socket.binaryType = 'arraybuffer';
    let got = '';
    // A terminal may tell a line in pieces.
    socket.addEventListener('message', ({ data }) => {
      got += typeof data === 'string' ? `<${JSON.parse(data).type}>` : Buffer.from(data).toString();
    });
    const [closed] = await once(socket, 'close');
    expect([closed.code, got]).toEqual([1000, '<start>hi\r\n<end>']);
  });

  test('a request that is none gets 426', async () => {
    const response = await fetch(`${daemon.url}/terminal`);
    expect([response.status, response.headers.get('upgrade')]).toEqual([426, 'websocket']);
    expect(await response.json()).toMatchObject({
      code: 426,
      message: expect.stringContaining('envd.terminal'),
    });
    expect((await refusalOf(daemon.url, '/terminals')).status).toBe(404);
    expect((await refusalOf(daemon.url, '/health')).status).toBe(204);
  });

  test('the log has a line of each, without its query', async () => {
    const terminal = await open({ cmd: 'echo secret-argument' });
    await terminal.closed;
    const { pid } = terminal.told[0] ?? {};
    const line = await until('the line', () =>
      daemon.log.find((one) => one.operation === 'GET /terminal' && one.pid === pid),
    );
    expect(line).toMatchObject({ status: 101, bytes: expect.any(Number) });
    expect(line).not.toHaveProperty('aborted');
    expect(JSON.stringify(daemon.log)).not.toContain('secret-argument');
  });
});

describe('the life of the daemon', () => {
  test('a freeze holds the terminal, and a thaw goes on with it', async () => {
    needs('cgroup v2');
    const terminal = await open({ cmd: 'while read line; do echo "got $line"; done' });
    terminal.send({ type: 'input', data: 'before\n' });
    await terminal.shows(/got before/);
    expect((await fetch(`${daemon.url}/freeze?maxWaitMs=5000`, { method: 'POST' })).status).toBe(200);
    terminal.send({ type: 'input', data: 'frozen\n' });
    expect((await fetch(`${daemon.url}/unfreeze`, { method: 'POST' })).status).toBe(204);
    await terminal.shows(/got frozen/);
  });

  test('an upgrade closes it with 1012, and its client goes on at the offset', async () => {
    needs('root');
    const terminal = await open({ cmd: 'echo one; read line; echo two; sleep 1000', tag: 'kept' });
    await terminal.shows(/one\r\n/);
    const before = daemon.log.filter(({ msg }) => msg === 'ready').length;
    expect((await fetch(`${daemon.url}/upgrade`, { method: 'POST' })).status).toBe(202);
    expect(await terminal.closed).toMatchObject({
      code: 1012,
      reason: expect.stringMatching(/being replaced/),
    });
    await until('the new program', () => daemon.log.filter(({ msg }) => msg === 'ready').length > before);
    const again = await open({ process: 'kept', from: String(terminal.bytes.length) });
    again.send({ type: 'input', data: 'x\n' });
    await again.shows(/^x\r\ntwo\r\n$/);
  });

  test('a stop closes it with 1012, and a client that does not answer does not hang it', async () => {
    await using stopped = await startDaemon();
    const polite = await TestSocket.open(stopped.url, '/terminal?cwd=/');
    await polite.message('start');
    const silent = await TestSocket.open(stopped.url, '/terminal?cwd=/');
    await silent.message('start');
    silent.socket.pause();
    expect(await stopped.stop()).toBe(0);
    expect(await polite.closed).toMatchObject({ code: 1012, reason: expect.stringMatching(/stopping/) });
  });
});
