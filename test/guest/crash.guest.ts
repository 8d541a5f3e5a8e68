import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, type TestOptions, test } from 'vitest';
import { booted, whenBooted } from '../support/guest/booted.ts';
import { Guest } from '../support/guest/guest.ts';
import { Machine } from '../support/guest/machine.ts';
import { exitIsTold } from '../support/machine/machine.ts';
import { Workload } from '../support/programs/workload.ts';

/** Kills, aborts and upgrades at random moments; ENVD_GUEST_CRASHES=50 for 50 upgrades and 50 of the others, with 100 processes. */
const ROUNDS = Number(process.env.ENVD_GUEST_CRASHES ?? 0);
const onDemand: TestOptions =
  ROUNDS > 0 ? whenBooted : { skip: true, meta: { notRun: 'ENVD_GUEST_CRASHES is not set' } };
const EACH = ROUNDS > 4 ? 20 : 3;
/** Without KVM a daemon needs some seconds to start. */
const MOST_DELAY_MS = 2000;
/** Without sockets, which are the clients'. The others change a little with what is being read. */
const FEW = 8;
const DROP_IN = '/run/systemd/system/envd.service.d';
const FIGURES =
  'p=$(systemctl show --property=MainPID --value envd); ls -l /proc/$p/fd | grep -v socket: >/tmp/fd; wc -l </tmp/fd; grep -c memfd /tmp/fd; ls /proc/1/fd | wc -l; sed -n "s/^RssAnon:\\s*\\([0-9]*\\) kB/\\1/p" /proc/$p/status';

describe('a daemon that crashes, is restarted and upgraded by systemd', onDemand, () => {
  let machine: Machine;
  let guest: Guest;

  beforeAll(async () => {
    machine = await Machine.restore(booted);
    await machine.answers();
    guest = new Guest(machine.url);
    // Without KVM, and on a busy machine, a program takes half a minute to load.
    const settings = '[Service]\\nEnvironment=ENVD_UPGRADE_TIMEOUT=300\\n';
    await guest.system(`mkdir -p ${DROP_IN} && printf '${settings}' >${DROP_IN}/slow.conf`);
    await guest.next('systemctl daemon-reload && systemctl restart envd');
  });
  afterAll(() => machine?.[Symbol.asyncDispose]());

  const pid = '$(systemctl show --property=MainPID --value envd)';
  const ends = [`kill -KILL ${pid}`, 'systemctl reload envd', `kill -ABRT ${pid}`, 'systemctl reload envd'];
  async function figures() {
    const [files = 0, memfds = 0, manager = 0, kib = 0] = (await guest.system(FIGURES))
      .split('\n')
      .map(Number);
    return { files, memfds, manager, mebibytes: Math.round(kib / 1024) };
  }

  test(`${5 * EACH} processes lose nothing in ${ROUNDS} upgrades and ${ROUNDS} crashes`, {
    timeout: ROUNDS * 120_000 + 600_000,
  }, async () => {
    const workload = await Workload.start(guest, { each: EACH, burst: 20_000, interval: 0.5 });
    const seen: Awaited<ReturnType<typeof figures>>[] = [];
    for (let round = 0; round < 2 * ROUNDS; round += 1) {
      await workload.say();
      await delay(Math.random() * MOST_DELAY_MS);
      await guest.next(ends[round % ends.length] ?? '');
      // Each call takes a second there.
      if (round === 4 || round === 2 * ROUNDS - 1) seen.push(await figures());
    }
    // An upgrade keeps processes of the daemon's own its children, but the first kill was before: the kernel tells exits of
    // others since 6.15.
    await workload.finish(exitIsTold(await guest.system('uname -r')));
    const [first, last] = [seen[0], seen.at(-1)];
    process.stderr.write(`after the fifth, the last: ${JSON.stringify([first, last])}\n`);
    expect(last?.files).toBeLessThanOrEqual((first?.files ?? 0) + FEW);
    expect(last?.memfds).toBe(first?.memfds);
    expect(last?.manager).toBeLessThanOrEqual((first?.manager ?? 0) + FEW);
    expect(last?.mebibytes).toBeLessThan((first?.mebibytes ?? 0) + 32);
    expect((await guest.process.list({})).processes).toEqual([]);
    expect(await guest.system("ps -eo stat= | grep -c '^Z' || true")).toBe('0');
    const log = await guest.system('journalctl --boot --unit=envd --output=cat --no-pager');
    expect(log).toContain('"msg":"recovered the processes of a daemon that has ended"');
    expect(log).not.toMatch(/"level":[56]0/);
  });
});
