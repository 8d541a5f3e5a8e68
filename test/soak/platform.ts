import { setTimeout as delay } from 'node:timers/promises';
import { anyOf, check, checkEqual } from './checks.ts';
import type { Place } from './place.ts';
import type { Subject } from './subject.ts';

/** How long the workload stays frozen at most, in milliseconds. */
const FROZEN_MS = 400;
/** When the caller of a collapse may leave, in milliseconds. */
const PATIENCE_MS = 15;
/** How long the daemon runs until it is ended: at least, and how much longer at most, in milliseconds. */
const LIFE_MS = [4000, 16_000] as const;

const POST = { method: 'POST' };

const isFrozen = async ({ shell, cgroups }: Subject) =>
  (await shell(`cat ${cgroups}/user/cgroup.events ${cgroups}/ptys/cgroup.events`)).includes('frozen 1');

/** A freeze, and the thaw after it, by another daemon if need be. */
export async function freezes(place: Place): Promise<void> {
  const query = place.subject.isGuest ? 'mode=hierarchy&maxWaitMs=60000' : 'maxWaitMs=5000';
  await place.thawed.take(async () => {
    const from = performance.now();
    const answer = await place.attempt(() => place.rest(`/freeze?${query}`, POST));
    await delay(anyOf(FROZEN_MS));
    await place.surely(() => place.rest('/unfreeze', POST));
    check('the workload is frozen after a thaw', !(await place.surely(() => isFrozen(place.subject))));
    if (!answer || place.wasAwaySince(from)) return;
    const { notFrozen, failed } = JSON.parse(answer.text) as Record<'notFrozen' | 'failed', number>;
    checkEqual('what could not be frozen', [notFrozen, failed], [0, 0]);
  });
}

/** Every other caller leaves. */
export async function collapses(place: Place): Promise<void> {
  await place.attempt(() => place.rest('/collapse', POST));
  await fetch(`${place.subject.url}/collapse`, { ...POST, signal: AbortSignal.timeout(PATIENCE_MS) }).catch(
    () => {},
  );
}

let number = 0;

/** What /init has set is there, whatever becomes of the daemon. */
export async function inits(place: Place): Promise<void> {
  const envVars = { NUMBER: `${number++}`, TEXT: 'x'.repeat(anyOf(1000)) };
  const init = () => {
    // It sets the clock.
    const timestamp = place.subject.isGuest ? new Date().toISOString() : undefined;
    return place.rest('/init', { ...POST, body: JSON.stringify({ envVars, timestamp }) }, [204]);
  };
  // While the workload is frozen on purpose, this would thaw it.
  await place.thawed.take(() => place.surely(init));
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
  const { subject } = place;
  const ways = [() => subject.kill(), () => subject.restart(), () => upgrade(subject)] as const;
  await place.input.take(() => place.end(async () => ways[anyOf(ways.length)]?.()));
  const [least, more] = LIFE_MS;
  await delay(place.pace * (least + anyOf(more)), null, { signal: place.stop }).catch(() => {});
}

/** Until no freeze and no collapse is under way. */
async function upgrade(subject: Subject): Promise<void> {
  const before = await subject.pid();
  for (let refused = true; refused; ) {
    refused = await subject.upgrade().then(
      () => false,
      (error: unknown) => {
        if (/: 503$/.test(String(error))) return true;
        throw error;
      },
    );
  }
  checkEqual('the pid after an upgrade', await subject.pid(), before);
}
