import { execFile, execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { promisify } from 'node:util';
import { Sandbox } from 'e2b';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { API_KEY, startGateway, type TestGateway } from '../support/programs/gateway.ts';
import { init } from '../support/programs/sandbox.ts';
import { freePort } from '../support/servers/free-port.ts';
import { type Nginx, startNginx } from '../support/servers/nginx.ts';

/* The published client as users set it up, who know a domain and a key: nginx has a wildcard certificate. */

const DOMAIN = 'sandboxes.test';
const TOKEN = 'the-token-of-the-guest';
let directory: string;
let gateway: TestGateway;
let daemon: TestDaemon;
let nginx: Nginx;
let port: number;
/** In the place of DNS: leads every name to nginx. */
let resolver: Server;
let served: Server;

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'envd-by-name-'));
  makeCertificate();
  setDefaultCACertificates([...getCACertificates('default'), readFileSync(file('ca.pem'), 'utf8')]);
  [gateway, daemon] = await Promise.all([
    startGateway({ args: [`--domain=${DOMAIN}`, '--header-prefix=E2b'] }),
    startDaemon(),
  ]);
  port = await freePort();
  const tls = { port, certificate: file('wildcard.pem'), key: file('wildcard.key') };
  nginx = await startNginx(gateway.port, { tls });
  resolver = createServer().on('connect', (_request, socket) => {
    const upstream = connect(port, '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      upstream.pipe(socket).pipe(upstream);
    });
    for (const each of [socket, upstream]) each.on('error', () => {});
  });
  served = createServer((request, response) => response.end(`${request.headers.host}${request.url}`));
  for (const each of [resolver, served]) await once(each.listen(0, '127.0.0.1'), 'listening');
  const work = join(daemon.scratch, 'work');
  mkdirSync(work);
  await init(daemon, { accessToken: TOKEN, defaultUser: 'root', envVars: { HOME: work } });
  await gateway.register('box', daemon.port, { envdAccessToken: TOKEN, timeout: 3600 });
});

afterAll(async () => {
  for (const each of [resolver, served]) {
    each.closeAllConnections();
    each.close();
  }
  for (const each of [nginx, gateway, daemon]) await each[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true });
});

const file = (name: string) => join(directory, name);
const portOf = (server: Server) => (server.address() as AddressInfo).port;

function makeCertificate(): void {
  const openssl = (...args: string[]) => execFileSync('openssl', args, { cwd: directory, stdio: 'ignore' });
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
  openssl('req', '-x509', ...key, '-keyout', 'ca.key', '-out', 'ca.pem', '-subj', '/CN=test');
  openssl('req', ...key, '-keyout', 'wildcard.key', '-out', 'wildcard.csr', '-subj', `/CN=${DOMAIN}`);
  writeFileSync(file('names'), `subjectAltName=DNS:${DOMAIN},DNS:*.${DOMAIN}\n`);
  const by = ['-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-extfile', 'names'];
  openssl('x509', '-req', '-in', 'wildcard.csr', ...by, '-out', 'wildcard.pem');
}

/** The API is api.DOMAIN, sandboxes are what `domain` of an answer says: nothing else is told. */
const connectSandbox = () => {
  const proxy = `http://127.0.0.1:${portOf(resolver)}`;
  return Sandbox.connect('box', { apiKey: API_KEY, domain: DOMAIN, proxy });
};

/** A client that knows nothing but a URL. */
const curl = async (...args: readonly string[]): Promise<string> => {
  const names = ['--cacert', file('ca.pem'), '--connect-to', `::127.0.0.1:${port}`];
  return (await promisify(execFile)('curl', ['-sS', '--max-time', '10', ...names, ...args])).stdout;
};

test('commands and files work by name', async () => {
  const sandbox = await connectSandbox();
  expect(sandbox.getHost(49983)).toBe(`49983-box.${DOMAIN}`);
  expect(await sandbox.isRunning()).toBe(true);
  expect((await sandbox.commands.run('echo $((40 + 2))')).stdout).toBe('42\n');
  await sandbox.files.write('poem', 'roses\n');
  expect(await sandbox.files.read('poem')).toBe('roses\n');
});

test('getHost is the host of a service in the sandbox', async () => {
  const host = (await connectSandbox()).getHost(portOf(served));
  expect(await curl(`https://${host}/a%20b?c`)).toBe(`${host}/a%20b?c`);
  expect(await curl(`https://${host.toUpperCase()}/`)).toBe(`${host.toUpperCase()}/`);
});

test('signed URLs work as they are, and no longer than they say', async () => {
  const sandbox = await connectSandbox();
  const upload = await sandbox.uploadUrl('signed', { useSignatureExpiration: 60 });
  writeFileSync(file('upload'), 'by a stranger\n');
  expect(upload).toMatch(new RegExp(`^https://49983-box\\.${DOMAIN}/files\\?`));
  expect(await curl('-F', `file=@${file('upload')}`, upload)).toContain('"name":"signed"');
  expect(await sandbox.files.read('signed')).toBe('by a stranger\n');
  const download = await sandbox.downloadUrl('signed', { useSignatureExpiration: 60 });
  expect(await curl(download)).toBe('by a stranger\n');
  expect(await curl(download.replace('path=signed', 'path=poem'))).toContain('invalid signature');
  const over = await sandbox.downloadUrl('signed', { useSignatureExpiration: -60 });
  expect(await curl(over)).toContain('signature is already expired');
});

test('what is closed stays closed behind nginx, in whatever spelling of the host', async () => {
  for (const host of ['49983-box', '49983-BOX', `${daemon.port}-box`]) {
    const answer = await curl('-X', 'POST', '-w', '%{http_code}', `https://${host}.${DOMAIN}/%69nit`);
    expect(answer).toContain('/init is not open to clients');
    expect(answer).toMatch(/403$/);
  }
  const [box, other] = [`https://49983-box.${DOMAIN}/health`, `Host: 49983-other.${DOMAIN}`];
  expect(await curl('-H', other, '-w', '%{http_code}', box)).toMatch(/502$/);
  expect(await curl('-H', 'E2b-Sandbox-Id: other', '-w', '%{http_code}', box)).toMatch(/400$/);
  expect(
    await curl(
      '-H',
      `X-Original-Host: 49983-box.${DOMAIN}`,
      '-w',
      '%{http_code}',
      `https://${DOMAIN}/health`,
    ),
  ).toMatch(/400$/);
  expect(await curl('-o', '/dev/null', '-w', '%{http_code}', box)).toBe('204');
});
