import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { dirname } from 'node:path';
import { connectTo, transcribe } from '../clients/clients.ts';
import { startDaemon } from '../programs/daemon.ts';

// A guest whose programs talk to a server with a certificate of a private authority: run in namespaces with copies of
// the certificates' directories that may be changed, in a directory for keys. Prints its observations as JSON.
const BUNDLE = '/etc/ssl/certs/ca-certificates.crt';
const LOCAL = '/usr/local/share/ca-certificates/envd.crt';
const OTHER = '/etc/pki/tls/certs/ca-bundle.crt';
const PORT = 8443;

const openssl = (...args: string[]) => execFileSync('openssl', args, { stdio: 'ignore' });

/** A certificate authority, and a certificate for localhost that it has signed. */
function authority(name: string): string {
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
  openssl(
    'req',
    '-x509',
    ...key,
    '-keyout',
    `${name}.key`,
    '-out',
    `${name}.pem`,
    '-subj',
    `/CN=${name}  Ünit`,
    '-utf8',
    '-addext',
    'keyUsage=critical,keyCertSign',
  );
  openssl('req', ...key, '-keyout', `${name}-server.key`, '-out', `${name}.csr`, '-subj', '/CN=localhost');
  // Python since 3.13 wants all that RFC 5280 demands.
  const extensions = [
    'subjectAltName=DNS:localhost',
    'subjectKeyIdentifier=hash',
    'authorityKeyIdentifier=keyid',
  ];
  writeFileSync(`${name}.ext`, `${extensions.join('\n')}\n`);
  const sign = ['-CA', `${name}.pem`, '-CAkey', `${name}.key`, '-CAcreateserial', '-extfile', `${name}.ext`];
  openssl('x509', '-req', '-in', `${name}.csr`, ...sign, '-out', `${name}-server.pem`);
  return readFileSync(`${name}.pem`, 'utf8');
}

const [first = '', second = '', third = ''] = ['first', 'second', 'third'].map(authority);
const server = createServer(
  { key: readFileSync('first-server.key'), cert: readFileSync('first-server.pem') },
  (_, response) => response.end('trusted'),
).listen(PORT, '127.0.0.1');

const PROGRAMS: Readonly<Record<string, readonly string[]>> = {
  curl: ['curl', '-sS', `https://localhost:${PORT}/`],
  wget: ['wget', '-qO-', `https://localhost:${PORT}/`],
  python: [
    'python3',
    '-c',
    `import urllib.request as r; print(r.urlopen('https://localhost:${PORT}/').read())`,
  ],
  openssl: [
    'sh',
    '-c',
    `openssl s_client -verify_return_error -connect localhost:${PORT} </dev/null >/dev/null && echo trusted`,
  ],
  node: [
    process.execPath,
    '-e',
    `fetch('https://localhost:${PORT}/').then((r) => r.text()).then(console.log)`,
  ],
};

const before = snapshot();
let daemon = await startDaemon();
const init = async (body: object) =>
  (await fetch(`${daemon.url}/init`, { method: 'POST', body: JSON.stringify(body) })).status;

/** Which programs trust the server: as the daemon starts them, and without any variable but PATH. */
async function trusting(): Promise<{ variables: string[]; places: string[] }> {
  const [variables, places]: [string[], string[]] = [[], []];
  for (const [name, [cmd = '', ...args]] of Object.entries(PROGRAMS)) {
    const plain = ['-i', `PATH=${process.env.PATH}`, cmd, ...args];
    if (await trusts({ cmd, args })) variables.push(name);
    if (await trusts({ cmd: 'env', args: plain })) places.push(name);
  }
  return { variables, places };
}

async function trusts(process: { readonly cmd: string; readonly args: string[] }): Promise<boolean> {
  const { stdout } = await transcribe(connectTo(daemon.url).process.start({ process }));
  return stdout.includes('trusted');
}

function snapshot(): Record<string, string> {
  const names = readdirSync('/etc/ssl/certs').filter((name) => /\.\d+$|\.envd$/.test(name));
  const files = [BUNDLE, LOCAL, OTHER, ...names.map((name) => `/etc/ssl/certs/${name}`)];
  return Object.fromEntries(
    files.filter((file) => existsSync(file)).map((file) => [file, readFileSync(file, 'utf8')]),
  );
}

const envs = async () => Object.keys((await (await fetch(`${daemon.url}/envs`)).json()) as object).sort();

const untrusted = await trusting();
const added = {
  status: await init({ caBundle: first + second, envVars: { CURL_CA_BUNDLE: BUNDLE } }),
  ...(await trusting()),
};
const variables = await envs();
// What a resume asks for, and what update-ca-certificates makes of it.
const kept = {
  status: await init({}),
  other: readFileSync(OTHER, 'utf8').endsWith(first + second),
  ...(await trusting()),
};
execFileSync('update-ca-certificates', { stdio: 'ignore' });
const rebuilt = await trusting();
await daemon.stop();
daemon = await startDaemon();
const restarted = await trusting();
const whole = JSON.stringify(snapshot());
const filler = `${LOCAL}.filler`;
writeFileSync(filler, Buffer.alloc(statfsSync(dirname(LOCAL)).bavail * 4096));
const full = {
  status: await init({ caBundle: second + third }),
  unchanged: JSON.stringify(snapshot()) === whole,
};
rmSync(filler);
const own = await init({ envVars: { SSL_CERT_FILE: '/mine' } });
const overridden = (await (await fetch(`${daemon.url}/envs`)).json()) as Record<string, string>;
await init({ envVars: {} });
const rotated = { status: await init({ caBundle: second }), ...(await trusting()) };
const removed = { status: await init({ caBundle: '' }), variables: await envs() };
execFileSync('update-ca-certificates', { stdio: 'ignore' });
const after = snapshot();
const changed = Object.keys({ ...before, ...after }).filter((file) => before[file] !== after[file]);
await daemon.stop();
server.close();
process.stdout.write(
  JSON.stringify({
    ...{
      untrusted,
      added,
      variables,
      kept,
      rebuilt,
      restarted,
      full,
      own,
      overridden,
      rotated,
      removed,
      changed,
    },
  }),
);
process.exit();
