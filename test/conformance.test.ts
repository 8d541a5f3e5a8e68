import { once } from 'node:events';
import { existsSync, readdirSync } from 'node:fs';
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  request,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { buffer, text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { needs } from './support/machine/needs.ts';
import { conformance, reported, startConformance } from './support/programs/conformance.ts';
import { startDaemon, type TestDaemon } from './support/programs/daemon.ts';
import { startFront } from './support/servers/front.ts';
import { until } from './support/until.ts';

const TOKEN = 'token-of-the-conformance-test';
/** Most of it is waiting; the limit is for what hangs. */
const LIMIT_MS = 300_000;

/** This case starts a process that goes on until it is ended. */
const LASTING_CASE = 'List tells pid, tag and command';

async function processesOf(daemon: TestDaemon): Promise<unknown> {
  const headers = { 'content-type': 'application/json' };
  return (await fetch(`${daemon.url}/process.Process/List`, { method: 'POST', headers, body: '{}' })).json();
}

describe('our daemon passes whole', () => {
  test.concurrent('without a token, with all that it can do', { timeout: LIMIT_MS }, async () => {
    needs('root');
    await using daemon = await startDaemon({ args: ['--output-directory=/tmp'] });
    const options = ['--init', '--freeze', '--upgrade'];
    const { code, failed, totals } = await reported('--url', daemon.url, ...options);
    expect(failed).toEqual([]);
    expect(code).toBe(0);
    expect(totals.passed).toBeGreaterThan(230);
  });

  test.concurrent('a table for people', { timeout: LIMIT_MS }, async () => {
    await using daemon = await startDaemon();
    const { code, stdout } = await conformance('--url', daemon.url, '--only', 'a unary call in JSON');
    expect(code).toBe(0);
    expect(stdout).toMatch(/\n\n1 Transport\npassed {6} +\d+ ms {2}a unary call in JSON\n\n/);
    expect(stdout).toMatch(/\n3 passed, 0 failed, 0 not run, 0 not offered, in [\d.]+ s\n$/);
  });

  test.concurrent('with a token, and leaves nothing behind', { timeout: LIMIT_MS }, async () => {
    needs('root');
    await using daemon = await startDaemon();
    const init = { method: 'POST', body: JSON.stringify({ accessToken: TOKEN }) };
    expect((await fetch(`${daemon.url}/init`, init)).status).toBe(204);
    const args = ['--url', daemon.url, '--token', TOKEN, '--dir', daemon.scratch];
    const { code, failed, results } = await reported(...args);
    expect(failed).toEqual([]);
    expect(code).toBe(0);
    const notRun = results.filter(({ reason }) => reason === 'no --token is given');
    expect(notRun).toEqual([]);
    expect(results.filter(({ name }) => name.startsWith('a signature'))).toHaveLength(4);
    const list = {
      method: 'POST',
      headers: { 'x-access-token': TOKEN, 'content-type': 'application/json' },
      body: '{}',
    };
    expect(await (await fetch(`${daemon.url}/process.Process/List`, list)).json()).toEqual({});
    expect(existsSync(daemon.scratch)).toBe(true);
    expect(readdirSync(daemon.scratch).filter((name) => name.startsWith('conformance-'))).toEqual([]);
  });

  test.concurrent('an interrupted run leaves nothing behind', { timeout: LIMIT_MS }, async () => {
    await using daemon = await startDaemon();
    const made = () => readdirSync(daemon.scratch).filter((name) => name.startsWith('conformance-'));
    const child = startConformance('--url', daemon.url, '--dir', daemon.scratch);
    const output = text(child.stdout);
    await until('it has made its directory', () => made().length > 0 || child.exitCode !== null);
    child.kill('SIGINT');
    const [code] = await once(child, 'exit');
    expect(code).toBe(130);
    expect(made()).toEqual([]);
    expect(await output).toMatch(
      /\n9 Afterwards\npassed .* nothing is left behind\n\n\d+ passed, 0 failed, /,
    );
    expect(await processesOf(daemon)).toEqual({});
  });

  test.concurrent('an interrupted run ends what it was starting', { timeout: LIMIT_MS }, async () => {
    await using daemon = await startDaemon();
    const hasCome = Promise.withResolvers<void>();
    const passLate = async (incoming: IncomingMessage, response: ServerResponse) => {
      const [body, type = ''] = [await buffer(incoming), incoming.headers['content-type']];
      if (body.includes('-listed')) {
        hasCome.resolve();
        // Longer than a run needs that does not wait for the answer.
        await sleep(2000);
      }
      const sent = { method: 'POST', headers: { 'content-type': type }, body };
      const answer = await fetch(`${daemon.url}${incoming.url}`, sent);
      response.writeHead(answer.status, Object.fromEntries(answer.headers));
      if (answer.body)
        Readable.fromWeb(answer.body)
          .on('error', () => {})
          .pipe(response);
    };
    await using front = await startFront(daemon.url, {
      answers(incoming, response) {
        const isStart = incoming.url === '/process.Process/Start';
        if (isStart) void passLate(incoming, response);
        return isStart;
      },
    });
    const child = startConformance('--url', front.url, '--dir', daemon.scratch, '--only', LASTING_CASE);
    const output = text(child.stdout);
    await Promise.race([hasCome.promise, once(child, 'exit')]);
    child.kill('SIGINT');
    expect(await once(child, 'exit')).toEqual([130, null]);
    expect(await output).toContain('nothing is left behind\n');
    await sleep(2000);
    expect(await processesOf(daemon)).toEqual({});
  });
});

describe('a daemon without extensions', () => {
  test('is told that they are not offered, and fails in none', { timeout: LIMIT_MS }, async () => {
    await using daemon = await startDaemon();
    const mute = (reply: Reply, path: string) =>
      path.startsWith('/health') ? { ...reply, status: 204, body: Buffer.alloc(0) } : reply;
    await using proxy = await proxyTo(daemon.port, mute);
    const only = ['+', '++'].flatMap((number) => ['--only', number]);
    const { code, failed, results, totals } = await reported('--url', proxy.url, ...only);
    expect([code, failed]).toEqual([0, []]);
    const extensions = results.slice(1, -1);
    expect(extensions.length).toBeGreaterThan(25);
    expect(extensions.filter(({ outcome }) => outcome !== 'not offered')).toEqual([]);
    expect(totals.notOffered).toBe(extensions.length);
  });
});

interface Reply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** What a daemon does wrong, by the case that finds it. Lengths stay as they are, as frames have them. */
const MISTAKES: Readonly<Record<string, (reply: Reply, path: string) => Reply | null>> = {
  'Stat: a link has its own name and size, and type and mode of its target': replaced('"Lrwx', '"lrwx'),
  'polled: an overwritten file is WRITE': replaced('EVENT_TYPE_WRITE', 'EVENT_TYPE_CHMOD'),
  "the end of 'exit 3'": replaced('exit status 3', 'exit status 4'),
  'Cache-Control: no-store, but private, no-cache and nosniff for downloads': ({ headers, ...reply }) => {
    const { 'cache-control': _, ...others } = headers;
    return { ...reply, headers: others };
  },
  'a range: from, to, both, and beyond the end': ({ headers, body, status }) => ({
    ...{ status, headers },
    body: headers['content-range'] === 'bytes 34-35/36' ? Buffer.from('yy') : body,
  }),
  'without token and signature a transfer is 401': replaced('missing signature', 'missing_signature'),
  'the first value of a header counts': replaced('"first"', '"other"'),
  // No answer at all.
  'GET /metrics: the figures of the guest': (reply, path) => (path === '/metrics' ? null : reply),
};

function replaced(text: string, by: string): (reply: Reply) => Reply {
  return ({ headers, body, status }) => ({
    ...{ status, headers },
    body: Buffer.from(body.toString('latin1').replaceAll(text, by), 'latin1'),
  });
}

/** A daemon whose answers are changed. */
async function proxyTo(
  port: number,
  change: (reply: Reply, path: string) => Reply | null,
): Promise<AsyncDisposable & { readonly url: string }> {
  const server = createServer((incoming, outgoing) => {
    const { method, url: path = '', headers } = incoming;
    const call = request({ port, host: '127.0.0.1', method, path, headers, agent: false }, (answer) => {
      const chunks: Buffer[] = [];
      answer.on('data', (chunk: Buffer) => chunks.push(chunk));
      answer.on('end', () => {
        const { statusCode: status = 0, headers: head } = answer;
        const reply = change({ status, headers: head, body: Buffer.concat(chunks) }, path);
        if (reply) outgoing.writeHead(reply.status, reply.headers).end(reply.body);
      });
    });
    call.on('error', () => outgoing.destroy());
    outgoing.on('close', () => call.destroy());
    incoming.pipe(call);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** Makes all of the mistakes. */
function mistaken(reply: Reply, path: string): Reply | null {
  let changed: Reply | null = reply;
  for (const mistake of Object.values(MISTAKES)) changed &&= mistake(changed, path);
  return changed;
}

describe('a daemon that does something else', () => {
  let url: string;
  let stop: () => Promise<void>;
  beforeAll(async () => {
    const daemon = await startDaemon();
    const init = { method: 'POST', body: JSON.stringify({ accessToken: TOKEN }) };
    await fetch(`${daemon.url}/init`, init);
    const proxy = await proxyTo(daemon.port, mistaken);
    ({ url } = proxy);
    stop = async () => {
      await proxy[Symbol.asyncDispose]();
      await daemon[Symbol.asyncDispose]();
    };
  });
  afterAll(() => stop());

  test('fails by the names of the cases, and no other', { timeout: LIMIT_MS }, async () => {
    const others = ['a unary call in JSON', "the end of 'exit 0'", 'an empty file'];
    const [wrong, silent] = [Object.keys(MISTAKES), 'GET /metrics: the figures of the guest'];
    const run = (names: readonly string[], ...limit: readonly string[]) =>
      reported('--url', url, '--token', TOKEN, ...limit, ...names.flatMap((name) => ['--only', name]));
    // The limit is for the only case that does not end by itself.
    const ended = await run([...wrong.filter((name) => name !== silent), ...others]);
    const left = await run([silent], '--limit', '5');
    expect([ended.code, left.code]).toEqual([1, 1]);
    expect([...ended.failed, ...left.failed].map(({ name }) => name).sort()).toEqual(wrong.sort());
    expect(left.failed.map(({ reason }) => reason)).toEqual(['it has not ended within 5 s']);
  });

  test('a wrong token fails at the first case, and none is run on', { timeout: LIMIT_MS }, async () => {
    const { code, results } = await reported('--url', url, '--token', 'wrong');
    expect([code, results.length]).toEqual([1, 2]);
    expect(results[0]).toMatchObject({ outcome: 'failed', reason: expect.stringContaining('401') });
  });
});

describe('what cannot be run', () => {
  test('no daemon: the exit code of what cannot be reached', async () => {
    const { code, stdout, stderr } = await conformance('--url', 'http://127.0.0.1:1');
    expect([code, stdout]).toEqual([121, '']);
    expect(stderr).toContain('nothing listens there');
  });

  test.each([
    [['--url', 'ftp://localhost'], 'is not a URL with http or https'],
    [['--url', 'http://x', '--limit', 'soon'], 'It must be a time'],
    [['--url', 'http://x', '--connections', 'x'], 'It must be a whole number'],
    [['--url', 'http://x', '--dir', 'tmp'], 'It must be an absolute path in the guest'],
    [['--url', 'http://x', '--only', 'nothing of this name'], "is called 'nothing of this name'"],
    [['--url', 'http://x', '--sideways'], '--sideways'],
    [['--gateway', 'http://x', '--sandbox', 'box'], 'give the daemon itself with --url'],
  ])('%j: the exit code of a wrong command line', async (args, message) => {
    const { code, stderr } = await conformance(...args);
    expect(code).toBe(120);
    expect(stderr).toContain(message);
  });
});
