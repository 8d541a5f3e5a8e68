import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { anyOf, check, checkEqual } from './checks.ts';
import type { Place } from './place.ts';

/** How long the workload stays frozen at most, in milliseconds. */
const FROZEN_MS = 400;
/** When the caller of a collapse may leave, in milliseconds. */
const PATIENCE_MS = 15;
/** How long the daemon runs until it is ended: at least, and how much longer at most, in milliseconds. */
const LIFE_MS = [4000, 16_000] as const;

const POST = { method: 'POST' };

const isFrozen = (place: Place) =>
  ['user', 'ptys'].some((name) =>
    readFileSync(join(place.daemon.cgroupRoot ?? '', name, 'cgroup.events'), 'utf8').includes('frozen 1'),
  );

/** A freeze, and the thaw after it, by another daemon if need be. */
export async function freezes(place: Place): Promise<void> {
  await place.thawed.take(async () => {
    const from = performance.now();
    const answer = await place.attempt(() => place.rest('/freeze?maxWaitMs=5000', POST));
    await delay(anyOf(FROZEN_MS));
    await place.surely(() => place.rest('/unfreeze', POST));
    check('the workload is frozen after a thaw', !isFrozen(place));
    if (!answer || place.wasAwaySince(from)) return;
    const { notFrozen, failed } = JSON.parse(answer.text) as Record<'notFrozen' | 'failed', number>;
    checkEqual('what could not be frozen', [notFrozen, failed], [0, 0]);
  });
}

/** Every other caller leaves. */
export async function collapses(place: Place): Promise<void> {
  await place.attempt(() => place.rest('/collapse', POST));
  await fetch(`${place.daemon.url}/collapse`, { ...POST, signal: AbortSignal.timeout(PATIENCE_MS) }).catch(
    () => {},
  );
}

let number = 0;

/** What /init has set is there, whatever becomes of the daemon. */
export async function inits(place: Place): Promise<void> {
  const envVars = { NUMBER: `${number++}`, TEXT: 'x'.repeat(anyOf(1000)) };
  // Without a timestamp, which would set the clock of this machine.
  const body = JSON.stringify({ envVars });
  // While the workload is frozen on purpose, this would thaw it.
  await place.thawed.take(() => place.surely(() => place.rest('/init', { ...POST, body }, [204])));
  const { text } = await place.surely(() => place.rest('/envs'));
  checkEqual('the variables', JSON.parse(text), envVars);
}

/** Is answered whatever else goes on; so are the metrics in both formats. */
export async function looks(place: Place): Promise<void> {
  await place.surely(() => place.rest('/health', {}, [204]));
  await place.surely(() => place.rest('/health?verbose'));
  await place.surely(() => place.rest('/metrics', { headers: { accept: 'text/plain; version=0.0.4' } }));
}

/** Kills, replaces and restarts the daemon, by chance. */
export async function ends(place: Place): Promise<void> {
  const { supervised } = place;
  const ways = [
    () => supervised.crash('SIGKILL'),
    () => supervised.crash('SIGQUIT'),
    () => upgrade(place),
  ] as const;
  await place.input.take(() => place.end(async () => unlessLate(ways[anyOf(ways.length)]?.())));
  const [least, more] = LIFE_MS;
  await delay(least + anyOf(more), null, { signal: place.stop }).catch(() => {});
}

/** On a machine that has no time the next one may listen later than tests wait. */
async function unlessLate(work: Promise<void> | undefined): Promise<void> {
  await work?.catch((error: unknown) => {
    if (!/^waited \d+ ms/.test(String((error as Error).message))) throw error;
  });
}

/** Until no freeze and no collapse is under way. */
async function upgrade({ supervised }: Place): Promise<void> {
  const before = supervised.main();
  for (let refused = true; refused; ) {
    refused = await supervised.upgrade().then(
      () => false,
      (error: unknown) => {
        if (/: 503$/.test(String(error))) return true;
        throw error;
      },
    );
  }
  checkEqual('the pid after an upgrade', supervised.main(), before);
}
