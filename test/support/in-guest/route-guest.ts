import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { startDaemon } from '../programs/daemon.ts';
import { until } from '../until.ts';

// A guest whose programs break the route to the metadata service, which is in another network namespace: $SERVICE is the
// file that it answers with. Prints its observations as JSON.
const { SERVICE = '' } = process.env;
const ADDRESS = '169.254.169.254';
const ip = (line: string) => execFileSync('ip', line.split(' '), { encoding: 'utf8' });
const tell = (token: string) => {
  const accessTokenHash = createHash('sha512').update(token).digest('hex');
  writeFileSync(SERVICE, JSON.stringify({ instanceID: 'box', accessTokenHash }));
};

tell('first');
await using daemon = await startDaemon({ env: { ENVD_METADATA_SERVICE: '' } });
const init = async (accessToken: string) =>
  (await fetch(`${daemon.url}/init`, { method: 'POST', body: JSON.stringify({ accessToken }) })).status;
await until('the service is known', async () =>
  (await (await fetch(`${daemon.url}/envs`)).text()).includes('box'),
);
await init('first');
const untouched = ip('route show');

const FAULTS = {
  blackhole: `route add blackhole ${ADDRESS}/32`,
  'another device': 'route add 169.254.0.0/16 dev vpn0',
  'no default route': 'route del default',
  unreachable: 'route replace unreachable 169.254.0.0/16',
};
const repaired: Record<string, { readonly status: number; readonly route: string }> = {};
for (const [name, line] of Object.entries(FAULTS)) {
  ip(`route flush ${ADDRESS}/32`);
  ip(line);
  tell(name);
  await until(`the route is repaired: ${name}`, async () => (await init(name)) === 204);
  repaired[name] = { status: await init(name), route: ip(`route get ${ADDRESS}`).split(' uid')[0] ?? '' };
}
const warnings = daemon.log.filter(({ msg }) => String(msg).includes('route to the metadata service'));
await daemon.stop();
process.stdout.write(JSON.stringify({ untouched, repaired, warnings: warnings.length }));
process.exit();
