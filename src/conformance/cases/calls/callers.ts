import { strict as assert } from 'node:assert';
import { Code } from '@connectrpc/connect';
import { given, section } from '../../suite/cases.ts';
import { as, JSON_BODY, RAW, refused, refusedRest, type TestedDaemon } from '../../suite/daemon.ts';
import { signFile } from '../../suite/sign-file.ts';
import { frame, framesOf } from '../../suite/wire.ts';

const UNAUTHORIZED =
  'unauthorized access, please provide a valid access token or method signing if supported';
const DAY_S = 86_400;

const secured = given('token');
const withUser = given('another user');
const now = () => Math.floor(Date.now() / 1000);

interface Signing {
  readonly operation?: 'read' | 'write';
  readonly username?: string;
  readonly expiration?: string;
}

/** The query of a transfer with its signature. */
function signed(
  daemon: TestedDaemon,
  path: string,
  { operation = 'read', username, expiration }: Signing = {},
) {
  const token = daemon.run.token ?? '';
  const signature = signFile({ path, operation, username: username ?? '', token, expiration });
  return {
    ...{ path, signature },
    ...(username !== undefined && { username }),
    ...(expiration !== undefined && { signature_expiration: expiration }),
  };
}

/** A transfer without the token. */
const transfer = (daemon: TestedDaemon, query: Record<string, string>, method = 'GET', headers = {}) =>
  daemon.send({
    ...{ method, path: `/files?${new URLSearchParams(query)}`, headers: { ...RAW, ...headers } },
    ...(method === 'POST' && { body: 'signed' }),
  });

export const CALLERS = section('2', 'Who is calling', {
  'no token is set: every operation is open': given('no token')(async (daemon) => {
    for (const path of ['/envs', '/metrics']) assert.equal((await daemon.send({ path })).status, 200);
    assert.deepEqual(await daemon.process.list({}).then(() => null), null);
  }),
  'no token is set: signatures are not looked at': given('no token')(async (daemon) => {
    const path = daemon.at('file');
    await daemon.upload(path, 'open', {}, { signature: 'v1_none' });
    const { status } = await transfer(daemon, { path, signature: 'v1_none' });
    assert.equal(status, 200);
  }),
  'without the token REST is 401': secured(async (daemon) => {
    for (const headers of [{}, { 'x-access-token': 'wrong' }, { 'x-access-token': '' }]) {
      for (const path of ['/envs', '/metrics'])
        refusedRest(await daemon.send({ path, headers }), 401, UNAUTHORIZED);
      const compose = {
        method: 'POST',
        path: '/files/compose',
        headers: { ...headers, ...JSON_BODY },
        body: '{}',
      };
      refusedRest(await daemon.send(compose), 401, UNAUTHORIZED);
    }
  }),
  'without the token a unary RPC is unauthenticated': secured(async (daemon) => {
    for (const path of ['/process.Process/List', '/filesystem.Filesystem/Stat']) {
      const { status, body } = await daemon.send({ method: 'POST', path, headers: JSON_BODY, body: '{}' });
      assert.equal(status, 401);
      assert.deepEqual(JSON.parse(String(body)), { code: 'unauthenticated', message: UNAUTHORIZED });
    }
  }),
  'without the token a stream is unauthenticated': secured(async (daemon) => {
    const headers = { 'content-type': 'application/connect+json' };
    const body = frame(JSON.stringify({ process: { cmd: 'true' } }));
    const answer = await daemon.send({ method: 'POST', path: '/process.Process/Start', headers, body });
    const text = answer.status === 200 ? framesOf(answer.body).at(-1)?.data : answer.body;
    const parsed = JSON.parse(String(text));
    assert.deepEqual(parsed.error ?? parsed, { code: 'unauthenticated', message: UNAUTHORIZED });
  }),
  'GET /health needs no token': async (daemon) => {
    assert.equal((await daemon.send({ path: '/health' })).status, 204);
  },
  'a signature opens one transfer: read': secured(async (daemon) => {
    const path = daemon.at('file');
    await daemon.upload(path, 'content');
    const { status, body } = await transfer(daemon, signed(daemon, path));
    assert.deepEqual([status, String(body)], [200, 'content']);
    refusedRest(await transfer(daemon, signed(daemon, path), 'POST'), 401, 'invalid signature');
  }),
  'a signature opens one transfer: write': secured(async (daemon) => {
    const path = daemon.at('file');
    const query = signed(daemon, path, { operation: 'write' });
    assert.equal((await transfer(daemon, query, 'POST')).status, 200);
    assert.equal(String(await daemon.download(path)), 'signed');
    refusedRest(await transfer(daemon, query), 401, 'invalid signature');
  }),
  'a signature is of its path and user': secured(async (daemon) => {
    const path = daemon.at('file');
    const { name } = daemon.guest.user;
    await daemon.upload(path);
    const query = signed(daemon, path, { username: name });
    assert.equal((await transfer(daemon, query)).status, 200);
    const { username: _, ...without } = query;
    for (const other of [{ ...query, path: `${path}2` }, { ...query, username: `${name}2` }, without])
      refusedRest(await transfer(daemon, other), 401, 'invalid signature');
  }),
  'a signature may expire, in Unix seconds': secured(async (daemon) => {
    const path = daemon.at('file');
    await daemon.upload(path);
    const later = String(now() + DAY_S);
    assert.equal((await transfer(daemon, signed(daemon, path, { expiration: later }))).status, 200);
    const over = signed(daemon, path, { expiration: String(now() - DAY_S) });
    refusedRest(await transfer(daemon, over), 401, 'signature is already expired');
    // Nobody prolongs it, and what is wrong is told first.
    const prolonged = { ...over, signature_expiration: later };
    refusedRest(await transfer(daemon, prolonged), 401, 'invalid signature');
    const unsigned = { ...signed(daemon, path), signature_expiration: String(now() - DAY_S) };
    refusedRest(await transfer(daemon, unsigned), 401, 'invalid signature');
  }),
  'without token and signature a transfer is 401': secured(async (daemon) => {
    const query = { path: daemon.at('file') };
    for (const method of ['GET', 'POST'])
      refusedRest(await transfer(daemon, query, method), 401, 'missing signature query parameter');
  }),
  'with the header the token alone decides': secured(async (daemon) => {
    const query = signed(daemon, daemon.at('file'));
    const wrong = { 'x-access-token': 'wrong' };
    refusedRest(
      await transfer(daemon, query, 'GET', wrong),
      401,
      'access token present in header but does not match',
    );
    await daemon.upload(daemon.at('file'), 'x', {}, { signature: 'v1_none' });
  }),
  'a refused upload stores nothing': secured(async (daemon) => {
    await daemon.makeDir();
    assert.equal((await transfer(daemon, { path: daemon.at('file') }, 'POST')).status, 401);
    assert.deepEqual(await daemon.names(), []);
  }),
  'RPCs: the user is that of HTTP basic': withUser(async (daemon) => {
    const { name, uid } = daemon.other;
    assert.equal(await daemon.shell('id -u', as(name)), String(uid));
    assert.equal(await daemon.shell('id -u'), String(daemon.guest.user.uid));
    const path = daemon.at('made');
    await daemon.filesystem.makeDir({ path }, { headers: as(name) });
    assert.equal((await daemon.stat(path)).owner, name);
  }),
  'RPCs: an unknown user is unauthenticated': async (daemon) => {
    const headers = as('conformance-nobody');
    const message = "invalid username: 'conformance-nobody'";
    await refused(daemon.filesystem.stat({ path: '/' }, { headers }), Code.Unauthenticated, message);
    await refused(daemon.start({ process: { cmd: 'true' } }, { headers }), Code.Unauthenticated, message);
  },
  'REST: the user is the query username': withUser(async (daemon) => {
    const { name } = daemon.other;
    await daemon.upload(daemon.at('file'), 'x', {}, { username: name });
    assert.equal((await daemon.stat(daemon.at('file'))).owner, name);
  }),
  'REST: an unknown user is 401': async (daemon) => {
    const query = { path: daemon.at('file'), username: 'conformance-nobody' };
    const message = /^error looking up user 'conformance-nobody': ./;
    refusedRest(await daemon.rest('GET', '/files', { query }), 401, message);
    refusedRest(await daemon.rest('POST', '/files', { query, headers: RAW, body: 'x' }), 401, message);
  },
  'calls that only name a process need no user': async (daemon) => {
    const { pid } = await daemon.start({ process: { cmd: 'cat', cwd: '/' } });
    const { processes } = await daemon.process.list({});
    assert(processes.some((each) => each.pid === pid));
  },
});
