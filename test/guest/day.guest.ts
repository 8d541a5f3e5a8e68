import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { byTag, transcribe } from '../support/clients/clients.ts';
import { commandsOf } from '../support/code/documents.ts';
import { booted, whenBooted } from '../support/guest/booted.ts';
import { Guest } from '../support/guest/guest.ts';
import { Machine } from '../support/guest/machine.ts';

const directory = mkdtempSync(join(tmpdir(), 'envd-day-'));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

const HOUR_MS = 3_600_000;
/** As a platform calls it, again 5 ms later until it is 204; ten times its 50 ms a try, as everything takes without KVM, and so much more for each. */
const TRY_MS = 500;
const PAUSE_MS = 5;
/** The log, and a stop. */
const OBSERVE = commandsOf('docs/operating.md', 'journalctl -u envd -o cat');
/** Restores in a row from the snapshot of the day; `life.guest.ts` does more of them from its own. */
const RESTORES = Number(process.env.ENVD_GUEST_RESTORES ?? 20);

/** Calls /init until it succeeds; returns the number of tries and the audit of a freeze. */
async function initUnderRetries(
  guest: Guest,
  body: object,
): Promise<{ tries: number; audit: string | null }> {
  for (let tries = 1; ; tries += 1) {
    const limit = AbortSignal.timeout(tries * TRY_MS);
    const response = await fetch(`${guest.url}/init`, {
      ...{ method: 'POST', body: JSON.stringify(body), signal: limit },
    }).catch(() => null);
    if (response?.status === 204) return { tries, audit: response.headers.get('x-envd-freeze-audit') };
    if (tries > 50) throw new Error(`no 204: ${response?.status}`);
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

/** Of the freeze of a hierarchy, in which more than one cgroup was frozen. */
function expectNothingEscaped(audit: { truncated?: boolean; frozen?: number }): void {
  expect(audit).toMatchObject({ escaped: 0, violations: 0 });
  // Cut short after 25 ms, an emulated guest may not have looked at any.
  if (!audit.truncated) expect(audit.frozen).toBeGreaterThan(1);
}

async function isForwarded(guest: Guest, port: number): Promise<boolean> {
  const { ports } = (await (await guest.call('GET', '/ports')).json()) as { ports: { port: number }[] };
  return ports.some((one) => one.port === port);
}

/** How many forwarded connections there were so far. */
async function connections(guest: Guest): Promise<number> {
  const page = await guest.platform('curl -sS -H "$AUTH" -H "Accept: text/plain" "$ENVD/metrics"');
  return Number(/^envd_forwarded_connections_total\{outcome="accepted"\} (\d+)$/m.exec(page)?.[1]);
}

describe('a day in the life of a guest', whenBooted, () => {
  test(
    'bake, boot, init, work, ports, freeze, collapse, snapshot, restore, init, upgrade, work, stop',
    async () => {
      // Baked and booted: the image is built by systemd/image, and `booted` is stopped after its boot.
      await using morning = await Machine.fork(booted, join(directory, 'day'));
      await morning.answers();
      const guest = new Guest(morning.url);
      const settings = { accessToken: 'day', envVars: { JOB: 'bake' }, defaultUser: 'root' };
      const first = await initUnderRetries(guest, { ...settings, timestamp: new Date().toISOString() });
      guest.token = 'day';
      expect(first.audit).toBeNull();

      // Work: a file, a job with a tag, a server at localhost.
      expect(
        (
          await guest.call(
            'POST',
            '/files?path=/srv/job',
            'i=0; while :; do i=$((i+1)); echo $i; sleep 0.1; done',
          )
        ).status,
      ).toBe(200);
      const counter = guest.process
        .start({ process: { cmd: '/bin/sh', args: ['/srv/job'] }, tag: 'job' })
        [Symbol.asyncIterator]();
      await counter.next();
      await counter.next();
      const server =
        'require("node:http").createServer((q, r) => r.end(q.socket.remoteAddress)).listen(8080, "127.0.0.1")';
      const serving = guest.process
        .start({ process: { cmd: '/opt/envd/lib/envd', args: ['-e', server] }, tag: 'server' })
        [Symbol.asyncIterator]();
      await serving.next();
      await expect.poll(() => isForwarded(guest, 8080)).toBe(true);
      const fetched =
        '/opt/envd/lib/envd -e \'fetch("http://10.0.2.15:8080/").then((r) => r.text()).then(console.log)\'';
      expect(await guest.shell(fetched)).toBe('127.0.0.1');
      expect(await connections(guest)).toBe(1);

      // The evening: everything but what a resume needs stops.
      const streams = [counter.next(), serving.next()].map((next) => next.catch(() => null));
      const freeze = await guest.call('POST', '/freeze?mode=hierarchy&maxWaitMs=60000');
      expect(await freeze.json()).toMatchObject({
        mode: 'hierarchy',
        notFrozen: 0,
        failed: 0,
        truncated: false,
      });
      expect(await (await guest.call('POST', '/collapse')).json()).toHaveProperty('collapsed');
      const night = await morning.snapshot();
      await Promise.all(streams);

      // The next day, an hour later by the platform's clock.
      await using next = await Machine.fork(night, join(directory, 'next'));
      await next.answers();
      const again = new Guest(next.url);
      const later = new Date(Date.now() + HOUR_MS);
      const body = {
        ...settings,
        envVars: { JOB: 'serve' },
        timestamp: later.toISOString(),
        lifecycleID: 'two',
      };
      const second = await initUnderRetries(again, body);
      again.token = 'day';
      // The answer of the try that has thawed may have come too late.
      if (second.audit === null) expect(second.tries).toBeGreaterThan(1);
      else expectNothingEscaped(JSON.parse(second.audit));
      expect(Math.abs(Number(await again.shell('date +%s')) * 1000 - later.getTime())).toBeLessThan(
        HOUR_MS / 2,
      );
      expect(await again.shell('echo $JOB')).toBe('serve');
      expect(await again.shell(fetched)).toBe('127.0.0.1');
      expect(await isForwarded(again, 8080)).toBe(true);
      expect(await connections(again)).toBe(2);

      // An upgrade to the program at its path: the same pid and processes.
      const pid = await again.mainPid();
      const before = (await again.process.list({})).processes.map(({ tag }) => tag).sort();
      const since = async () =>
        ((await (await again.call('GET', '/health?verbose')).json()) as { since: string }).since;
      const started = await since();
      expect((await again.call('POST', '/upgrade')).status).toBe(202);
      await expect.poll(() => since().catch(() => started)).not.toBe(started);
      expect(await again.mainPid()).toBe(pid);
      expect((await again.process.list({})).processes.map(({ tag }) => tag).sort()).toEqual(before);

      // Work goes on: the counter has missed nothing.
      let text = '';
      const kept = again.process.connect({ process: byTag('job'), resumeFrom: { stdout: 0n } });
      for await (const { event: message } of kept) {
        const event = message?.event;
        if (event?.case === 'data' && event.value.output.case === 'stdout')
          text += Buffer.from(event.value.output.value);
        if (text.split('\n').length > 20) break;
      }
      expect(text).toBe(Array.from({ length: text.split('\n').length - 1 }, (_, i) => `${i + 1}\n`).join(''));

      // The end: a stop takes all processes of clients with it.
      const job = (await again.process.list({})).processes.find(({ tag }) => tag === 'job')?.pid;
      const stop = `systemd-run --quiet --no-block --unit=evening -p StandardOutput=file:/run/evening sh -ec '${OBSERVE}
systemctl start envd'`;
      await transcribe(
        again.process.start({ process: { cmd: 'sh', args: ['-c', stop] }, tag: '_system' }),
      ).catch(() => null);
      await expect
        .poll(async () => (await new Guest(next.url).call('GET', '/envs').catch(() => null))?.status)
        .toBe(200);
      const anew = new Guest(next.url);
      await expect.poll(() => anew.shell(`test -d /proc/${job} && echo runs || echo ended`)).toBe('ended');
      expect(await anew.shell('cat /run/evening')).toMatch(/^\{.*"msg":"ready"/m);
      expect(await anew.shell('systemctl --failed --plain --no-legend')).toBe('');

      await next[Symbol.asyncDispose]();
      process.stderr.write(
        `test:guest: a day: ${first.tries} and ${second.tries} tries of /init; ${RESTORES} restores\n`,
      );
      for (let round = 1; round <= RESTORES; round += 1) {
        await using restored = await Machine.restore(night);
        await restored.answers();
        const one = new Guest(restored.url);
        await initUnderRetries(one, {
          ...settings,
          timestamp: new Date(later.getTime() + round).toISOString(),
        });
        one.token = 'day';
        expect(await one.shell('cat /srv/job | head -c 4')).toBe('i=0;');
      }
    },
    RESTORES * 60_000 + 600_000,
  );
});
