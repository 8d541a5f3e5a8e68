import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { beforeEach, describe, expect, test } from 'vitest';
import { needs } from '../../support/machine/needs.ts';
import { scratch } from '../../support/machine/scratch.ts';

const GUEST = fileURLToPath(new URL('../../support/in-guest/certificates-guest.ts', import.meta.url));
/** With directories of certificates of its own, one of them as Fedora has it. */
const SCRIPT = `ip link set lo up && mkdir etc && cp -a /etc/. etc && mount --bind etc /etc &&
mount -t tmpfs -o size=64k tmpfs /usr/local/share/ca-certificates && update-ca-certificates --fresh >/dev/null 2>&1 &&
mkdir -p /etc/pki/tls/certs && cp /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt && exec "$@"`;

interface Trusting {
  readonly status?: number;
  /** Programs that trust the server, as the daemon starts them, and without variables. */
  readonly variables: readonly string[];
  readonly places: readonly string[];
}

interface Seen {
  readonly untrusted: Trusting;
  readonly added: Trusting;
  readonly variables: readonly string[];
  readonly kept: Trusting & { readonly other: boolean };
  readonly rebuilt: Trusting;
  readonly restarted: Trusting;
  readonly full: { readonly status: number; readonly unchanged: boolean };
  readonly own: number;
  readonly overridden: Readonly<Record<string, string>>;
  readonly rotated: Trusting;
  readonly removed: { readonly status: number; readonly variables: readonly string[] };
  readonly changed: readonly string[];
}

async function visitGuest(): Promise<Seen> {
  const args = ['--net', '--mount', 'sh', '-c', SCRIPT, 'sh', process.execPath, GUEST];
  const { stdout } = await promisify(execFile)('unshare', args, { cwd: scratch(), timeout: 280_000 });
  return JSON.parse(stdout) as Seen;
}

let seen: Seen;
beforeEach(async () => {
  needs('mounts', 'ip', 'openssl', 'curl', 'python3', 'update-ca-certificates', 'wget');
  seen ??= await visitGuest();
});

const PLACES = ['curl', 'wget', 'python', 'openssl'];

describe('certificates of /init', () => {
  test('are trusted by programs that look in the usual places, or at the usual variables', () => {
    expect(seen.untrusted).toEqual({ variables: [], places: [] });
    // Node has certificates of its own, and looks in no place.
    expect(seen.added).toEqual({ status: 204, variables: [...PLACES, 'node'], places: PLACES });
    expect(seen.variables).toEqual([
      ...['AWS_CA_BUNDLE', 'CURL_CA_BUNDLE', 'DENO_CERT', 'GIT_SSL_CAINFO', 'NODE_EXTRA_CA_CERTS'],
      ...['REQUESTS_CA_BUNDLE', 'SSL_CERT_FILE'],
    ]);
  });

  test('are kept by a call without any, by update-ca-certificates, and by a new daemon', () => {
    const all = { variables: [...PLACES, 'node'], places: PLACES };
    expect(seen.kept).toEqual({ status: 204, other: true, ...all });
    expect(seen.rebuilt).toEqual(all);
    expect(seen.restarted).toEqual(all);
  });

  test('are replaced by others', () => {
    expect(seen.rotated).toEqual({ status: 204, variables: [], places: [] });
  });

  test('are removed, with the variables, and nothing of them is left', () => {
    expect(seen.removed).toEqual({ status: 204, variables: [] });
    expect(seen.changed).toEqual([]);
  });
});

test('a full disk is 507, and what was there stays', () => {
  expect(seen.full).toEqual({ status: 507, unchanged: true });
});

test('a variable that the platform has set is left as it is', () => {
  expect(seen.own).toBe(204);
  expect(seen.overridden.SSL_CERT_FILE).toBe('/mine');
  expect(seen.overridden.NODE_EXTRA_CA_CERTS).toBe('/usr/local/share/ca-certificates/envd.crt');
});
