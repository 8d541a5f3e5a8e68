import { strict as assert } from 'node:assert';
import { connect } from 'node:net';
import { connect as connectSecurely } from 'node:tls';
import { section } from '../../suite/cases.ts';
import { JSON_BODY, RAW, refusedRest, type TestedDaemon } from '../../suite/daemon.ts';
import { frame } from '../../suite/wire.ts';
import { helloRequest, postTyped, postUnary, START_PATH, STAT_PATH } from './rpc-calls.ts';

/** What a daemon says to bytes that are not HTTP. */
function rawExchange(daemon: TestedDaemon, bytes: string): Promise<string> {
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

export const HTTP = section('1', 'HTTP', {
  'CORS: any origin, method and header, for two hours; also with no token': async (daemon) => {
    const asks = {
      origin: 'https://example.com',
      'access-control-request-method': 'PUT',
      'access-control-request-headers': 'x-access-token, x-anything',
    };
    for (const path of ['/files', STAT_PATH]) {
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
      ['PUT', STAT_PATH, 'POST'],
      ['DELETE', START_PATH, 'POST'],
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
    for (const path of [STAT_PATH, START_PATH]) {
      const answer = await postTyped(daemon, path, 'text/plain', '{}');
      assert.equal(answer.status, 415);
      const right = path === STAT_PATH ? 'application/json' : 'application/connect+json';
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
      RPC: await postUnary(daemon, STAT_PATH, { path }),
      'failed RPC': await postUnary(daemon, STAT_PATH, { path: daemon.at('none') }),
      stream: await postTyped(
        daemon,
        START_PATH,
        'application/connect+json',
        frame(JSON.stringify(helloRequest(daemon))),
      ),
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
    const bytes = `POST ${STAT_PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: many\r\n\r\n`;
    parserError(await rawExchange(daemon, bytes), 400);
    assert.equal((await daemon.rest('GET', '/health', { headers: JSON_BODY })).status, 204);
  },
});
