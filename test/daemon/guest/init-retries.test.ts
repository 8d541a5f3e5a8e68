import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { beforeEach, expect, type TestOptions, test } from 'vitest';
import { needs } from '../../support/machine/needs.ts';
import { scratch } from '../../support/machine/scratch.ts';

const GUEST = fileURLToPath(new URL('../../support/in-guest/retries-guest.ts', import.meta.url));
/** With copies of /etc and /usr/sbin that may be changed. */
const SCRIPT = `ip link set lo up && cp -a /etc "$T/etc" && cp -a /usr/sbin "$T/sbin" && mkdir "$T/tmp" "$T/server" &&
cat > "$T/sbin/mount.nfs" <<END &&
#!/bin/sh
case \\$1 in down:*) while [ -e "$T/hangs" ]; do sleep 0.02; done ;; esac
echo "\\$1" >> "$T/log"
exec mount --bind "$T/server" "\\$2"
END
chmod +x "$T/sbin/mount.nfs" && export HANGS="$T/hangs" LOG="$T/log" &&
mount --bind "$T/etc" /etc && mount --bind "$T/sbin" /usr/sbin && exec "$@"`;

interface Series {
  readonly tries: number;
  /** Those of them that began after the end of the fault. */
  readonly late: number;
  /** Milliseconds since the first try; null: later than the last one. */
  readonly thawed: number | null;
  readonly done: number;
  readonly afterMend: number | null;
  readonly beforeMend: { readonly mounts: readonly string[]; readonly hosts: boolean } | null;
}

interface Seen {
  readonly first: number;
  readonly volumes: Series;
  readonly mounted: {
    readonly log: readonly string[];
    readonly mounts: readonly string[];
    readonly hosts: boolean;
  };
  readonly hung: Series;
  readonly refusing: Series;
  readonly flapped: Series;
  readonly slow: Series;
  readonly right: number;
  readonly refused: readonly (number | null)[];
}

/** How long the faults last; a minute takes four in all. */
const SECONDS = process.env.ENVD_RETRY_SECONDS ?? '2';
const onDemand: TestOptions =
  Number(SECONDS) >= 60 ? {} : { skip: true, meta: { notRun: 'ENVD_RETRY_SECONDS=60 is not set' } };

/** The results of one run, which all tests look at. */
async function visitGuest(): Promise<Seen> {
  const namespaces = ['--net', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc'];
  const args = [...namespaces, 'sh', '-c', SCRIPT, 'sh', process.execPath, GUEST];
  const env = { ...process.env, T: scratch(), SECONDS };
  const { stdout } = await promisify(execFile)('unshare', args, {
    env,
    maxBuffer: 100_000_000,
    timeout: 390_000,
  });
  return JSON.parse(stdout) as Seen;
}

let seen: Seen;
beforeEach(async () => {
  needs('mounts', 'ip', 'cgroup v2');
  seen ??= await visitGuest();
}, 400_000);

/** Printed by a long run (ENVD_RETRY_SECONDS). */
function figuresOf({ volumes, hung, refusing, flapped }: Seen): string {
  const told = Object.entries({ volumes, hung, refusing, flapped }).map(
    ([name, { tries, thawed, afterMend }]) => {
      const [thaw, mend] = [thawed, afterMend].map((ms) => (ms === null ? '-' : Math.round(ms)));
      return `${name}: ${tries} tries, thawed after ${thaw} ms, 204 ${mend} ms after the end of the fault`;
    },
  );
  return told.join('\n');
}

/** A call that waited for the abandoned ones would need more tries than were abandoned. */
const expectSoon = ({ tries, late }: Series) => expect(late).toBeLessThan(tries / 2);

test('while a volume and the metadata service hang, the workload runs at once and all else is applied', () => {
  const { volumes } = seen;
  expect(volumes.thawed).toBeLessThan(volumes.done - (volumes.afterMend ?? 0));
  expect(volumes.beforeMend).toEqual({ mounts: ['/tmp/volume-b'], hosts: true });
  expect(volumes.tries).toBeGreaterThan(10);
});

test('when the server of the volume is back, the next try succeeds, and nothing was mounted or written twice', () => {
  expectSoon(seen.volumes);
  expect([...seen.mounted.log].sort()).toEqual(['down:/a', 'up:/b']);
  expect([...seen.mounted.mounts].sort()).toEqual(['/tmp/volume-a', '/tmp/volume-b']);
  expect(seen.mounted.hosts).toBe(true);
});

test('a token that the metadata service must confirm is accepted as soon as that answers', () => {
  expect(seen.first).toBe(204);
  for (const series of [seen.hung, seen.refusing, seen.flapped]) expectSoon(series);
  // Tries that are shorter than a response succeed nevertheless.
  expect(seen.slow.tries).toBeGreaterThan(1);
});

test('a right token waits neither for wrong ones nor for the metadata service', () => {
  // Within 20 s; a hundred that wait for each other take longer.
  expect(seen.right).toBe(204);
  // On a busy machine all of them may have waited for long.
  expect([401, 503]).toEqual(expect.arrayContaining([...seen.refused]));
});

test(
  'a volume and a metadata service that hang or are down for a minute are tried all the time',
  onDemand,
  () => {
    process.stderr.write(`${figuresOf(seen)}\n`);
    for (const { tries, done } of [seen.volumes, seen.hung, seen.refusing]) {
      expect(done).toBeGreaterThan(60_000);
      // A try and the pause after it take 55 ms at most.
      expect(tries).toBeGreaterThan(300);
    }
  },
);
