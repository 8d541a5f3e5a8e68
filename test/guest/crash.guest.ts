import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, type TestOptions, test } from 'vitest';
import { booted, whenBooted } from '../support/guest/booted.ts';
import { Guest } from '../support/guest/guest.ts';
import { Machine } from '../support/guest/machine.ts';
import { Workload } from '../support/workload.ts';

/**
 * Kills, restarts and upgrades, one after the other, at random moments; ENVD_GUEST_CRASHES=100 with 25 of each kind. Only on
 * demand: without KVM a round takes minutes, and the trial of an upgrade more than its 30 s on a busy machine.
 */
const ROUNDS = Number(process.env.ENVD_GUEST_CRASHES ?? 0);
const onDemand: TestOptions =
  ROUNDS > 0 ? whenBooted : { skip: true, meta: { notRun: 'ENVD_GUEST_CRASHES is not set' } };
const EACH = ROUNDS > 20 ? 25 : 3;
/** Without KVM a daemon needs some seconds to start. */
const MOST_DELAY_MS = 3000;

describe('a daemon that crashes, is restarted and upgraded by systemd', onDemand, () => {
  let machine: Machine;
  let guest: Guest;

  beforeAll(async () => {
    machine = await Machine.restore(booted);
    await machine.answers();
    guest = new Guest(machine.url);
  });
  afterAll(() => machine?.[Symbol.asyncDispose]());

  const ends = [
    'kill -KILL $(systemctl show --property=MainPID --value envd)',
    'systemctl reload envd',
    'kill -ABRT $(systemctl show --property=MainPID --value envd)',
    'systemctl restart envd',
  ];
  const ready = () => guest.system('journalctl --boot --unit=envd --output=cat | grep -c \'"msg":"ready"\'');
  const again = async <T>(call: () => Promise<T>): Promise<T> => {
    let result: { value: T } | null = null;
    await expect
      .poll(async () => {
        result = await call().then(
          (value) => ({ value }),
          () => null,
        );
        return result !== null;
      })
      .toBe(true);
    return (result as unknown as { value: T }).value;
  };

  test(`${4 * EACH} processes lose nothing in ${ROUNDS} crashes, restarts and upgrades`, {
    timeout: ROUNDS * 120_000 + 600_000,
  }, async () => {
    const workload = await Workload.start(guest, EACH);
    const open = () => guest.system('ls /proc/$(systemctl show --property=MainPID --value envd)/fd | wc -l');
    const opened: number[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      await workload.say();
      await delay(Math.random() * MOST_DELAY_MS);
      const before = Number(await again(ready));
      const command = ends[round % ends.length] ?? '';
      // In the background, as the daemon that starts it may be gone before it answers.
      await again(() => guest.system(`(sleep 0.2; ${command}) >/dev/null 2>&1 &`)).catch(() => {});
      await expect.poll(() => again(ready).then(Number)).toBeGreaterThan(before);
      opened.push(Number(await again(open)));
    }
    // An upgrade keeps processes of the daemon's own its children, but the first kill was before: the kernel tells exits of
    // others since 6.15.
    const [major = 0, minor = 0] = (await guest.system('uname -r')).split('.').map(Number);
    await workload.finish(major > 6 || (major === 6 && minor >= 15));
    const known = await guest.process.list({});
    expect(known.processes).toEqual([]);
    expect(await guest.system("ps -eo stat= | grep -c '^Z' || true")).toBe('0');
    expect(opened.at(-1)).toBeLessThanOrEqual(Math.max(...opened.slice(0, ends.length)) + 3);
    const log = await guest.system('journalctl --boot --unit=envd --output=cat --no-pager');
    expect(log).toContain('"msg":"recovered after the end of another daemon"');
    expect(log).not.toMatch(/"level":[56]0/);
  });
});
