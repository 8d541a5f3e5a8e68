import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { connectTo, transcribe } from '../clients/clients.ts';
import { startDaemon } from '../programs/daemon.ts';
import { startMetadataService } from '../servers/metadata-service.ts';
import { until } from '../until.ts';

// A guest with the metadata service at the platform's address: run in its own namespaces, with the link-local address
// on the loopback interface and an empty /run. Goes through boot, pause and resume, and prints its observations as
// JSON.
const hashOf = (token: string) => createHash('sha512').update(token).digest('hex');

await using service = await startMetadataService('169.254.169.254', 80);
service.metadata = { sandboxID: 'box-1', templateID: 'plate', accessTokenHash: hashOf('token-1') };
await using daemon = await startDaemon({ args: ['--metadata-service=http://169.254.169.254/'] });

const init = async (body: object) => {
  const response = await fetch(`${daemon.url}/init`, { method: 'POST', body: JSON.stringify(body) });
  const { message = null } = response.status === 204 ? {} : ((await response.json()) as { message?: string });
  return { status: response.status, message };
};
const environment = async (token?: string) => {
  const headers = token === undefined ? {} : { 'x-access-token': token };
  return (await fetch(`${daemon.url}/envs`, { headers })).json() as Promise<Record<string, string>>;
};
const files = (directory = '/run/svc') =>
  Object.fromEntries(
    readdirSync(directory).map((name) => [name, readFileSync(`${directory}/${name}`, 'utf8')]),
  );

// The files are written after the variables are set.
await until('the files are there', () => existsSync('/run/svc/SVC_TEMPLATE_ID'));
const boot = { environment: await environment(), files: files() };
const refused = [await init({ accessToken: 'wrong' }), await init({})];
const first = await init({ accessToken: 'token-1' });

// Another sandbox, resumed from a snapshot of this one.
service.metadata = { sandboxID: 'box-2', accessTokenHash: hashOf('token-2') };
const resumed = {
  ...(await init({ accessToken: 'token-2', envVars: { A: '1', SVC_SANDBOX_ID: 'mine' } })),
  environment: await environment('token-2'),
  files: files(),
};
service.metadata = { sandboxID: 'box-2', accessTokenHash: hashOf('') };
const reset = await init({});
const { process: rpc } = connectTo(daemon.url);
const run = await transcribe(
  rpc.start({ process: { cmd: 'sh', args: ['-c', 'echo "$SVC_SANDBOX $SVC_SANDBOX_ID $A"'] } }),
);

const isAsked = Promise.withResolvers<void>();
service.intercept = () => isAsked.resolve();
const order: string[] = [];
const unanswered = init({ accessToken: 'token-3' });
void unanswered.then(({ status }) => order.push(`/init ${status}`));
await isAsked.promise;
order.push(`/metrics ${(await fetch(`${daemon.url}/metrics`)).status}`);
const silent = await unanswered;
service.intercept = (_, response) => response.writeHead(500).end('secret');
const broken = await init({ accessToken: 'token-3' });
const asked = Promise.withResolvers<void>();
service.intercept = () => asked.resolve();
const stopping = init({ accessToken: 'token-3' }).catch(() => null);
await asked.promise;
const exitCode = await daemon.stop();
await stopping;

// The same guest with another prefix, and the service where it is looked for by default.
service.intercept = null;
service.metadata = { sandboxID: 'box-3', templateID: 'plate' };
await using named = await startDaemon({
  ...{ args: ['--name-prefix=e2b'], env: { ENVD_METADATA_SERVICE: '' } },
});
await until('the files are there', () => existsSync('/run/e2b/E2B_TEMPLATE_ID'));
const prefixed = {
  environment: await (await fetch(`${named.url}/envs`)).json(),
  files: files('/run/e2b'),
};

const seen = {
  boot,
  prefixed,
  refused,
  first,
  resumed,
  reset,
  stdout: String(run.stdout),
  order,
  silent,
  broken,
};
const log = JSON.stringify(daemon.log);
process.stdout.write(JSON.stringify({ ...seen, exitCode, log }));
