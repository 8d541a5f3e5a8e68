// A guest with a loopback interface of its own, whose daemon collapses its memory while an untrusted user imitates every
// connection to it. Prints the statuses that he got, and the statistics of the collapses, as JSON.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { startDaemon } from '../programs/daemon.ts';

const ATTACK = fileURLToPath(new URL('../attackers/share-ports.py', import.meta.url));
const NOBODY = '65534';
const COLLAPSES = 20;
const TOKEN = 'the-token-of-this-guest';

await using daemon = await startDaemon({ args: ['--host=0.0.0.0'] });
const headers = { 'content-type': 'application/json' };
const body = JSON.stringify({ accessToken: TOKEN });
const init = await fetch(`${daemon.url}/init`, { method: 'POST', headers, body });
if (init.status !== 204) throw new Error(await init.text());

const attack = spawn('python3', [ATTACK, NOBODY, String(daemon.port)], {
  stdio: ['pipe', 'pipe', 'inherit'],
});
const lines = createInterface({ input: attack.stdout });
await once(lines, 'line');
const collapses: unknown[] = [];
for (let round = 0; round < COLLAPSES; round++) {
  const collapsed = await fetch(`${daemon.url}/collapse`, {
    method: 'POST',
    // Each on a connection of its own, which the attacker can imitate.
    headers: { 'x-access-token': TOKEN, connection: 'close' },
  });
  collapses.push(await collapsed.json());
}
const told = once(lines, 'line');
attack.stdin.end('over');
const [statuses] = await told;
process.stdout.write(`${JSON.stringify({ statuses: JSON.parse(statuses), collapses })}\n`);
