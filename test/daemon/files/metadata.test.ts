import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { beforeEach, describe, expect, test } from 'vitest';
import { needs } from '../../support/machine/needs.ts';

const GUEST = fileURLToPath(new URL('../../support/in-guest/metadata-guest.ts', import.meta.url));
const SCRIPT = `ip link set lo up && ip address add 169.254.169.254/32 dev lo &&
mount -t tmpfs tmpfs /run && exec "$@"`;

interface Answer {
  readonly status: number;
  readonly message: string | null;
}

interface Seen {
  readonly boot: { readonly environment: object; readonly files: object };
  readonly prefixed: { readonly environment: object; readonly files: object };
  readonly refused: readonly Answer[];
  readonly first: Answer;
  readonly resumed: Answer & { readonly environment: object; readonly files: object };
  readonly reset: Answer;
  readonly stdout: string;
  readonly order: readonly string[];
  readonly silent: Answer;
  readonly broken: Answer;
  readonly exitCode: number;
  readonly log: string;
}

/** The results of one run of a guest, which all tests look at. */
async function visitGuest(): Promise<Seen> {
  const args = ['--net', '--mount', 'sh', '-c', SCRIPT, 'sh', process.execPath, GUEST];
  const { stdout } = await promisify(execFile)('unshare', args, { maxBuffer: 10_000_000 });
  return JSON.parse(stdout) as Seen;
}

let seen: Seen;
beforeEach(async () => {
  needs('mounts', 'ip');
  seen ??= await visitGuest();
});

describe('the daemon sets the identity of the sandbox', () => {
  test('in the background after the boot', () => {
    const own = { SVC_SANDBOX: 'true', SVC_SANDBOX_ID: 'box-1', SVC_TEMPLATE_ID: 'plate' };
    expect(seen.boot).toEqual({ environment: own, files: own });
  });

  test('again with the /init after a resume, and /init cannot override it', () => {
    const own = { SVC_SANDBOX: 'true', SVC_SANDBOX_ID: 'box-2' };
    expect(seen.resumed).toMatchObject({ environment: { A: '1', ...own }, files: own });
    expect(Object.keys(seen.resumed.files)).not.toContain('SVC_TEMPLATE_ID');
    expect(seen.stdout).toBe('true box-2 1\n');
  });
});

test('the prefix of the variables and files is configurable', () => {
  const own = { E2B_SANDBOX: 'true', E2B_SANDBOX_ID: 'box-3', E2B_TEMPLATE_ID: 'plate' };
  expect(seen.prefixed).toEqual({ environment: own, files: own });
});

describe('the hash in the metadata', () => {
  test('decides which token /init may set; it is read anew for each call', () => {
    expect(seen.refused.map(({ status }) => status)).toEqual([401, 401]);
    expect([seen.first.status, seen.resumed.status, seen.reset.status]).toEqual([204, 204, 204]);
  });

  test('is waited for, while others are served; without it /init is 503', () => {
    expect(seen.silent).toMatchObject({
      status: 503,
      message: 'metadata service did not answer within 1000 ms',
    });
    expect(seen.order).toEqual(['/metrics 200', '/init 503']);
    expect(seen.broken).toMatchObject({
      status: 503,
      message:
        "metadata service 'http://169.254.169.254/' cannot be read: PUT returned status 500, expected 200",
    });
  });
});

test('a stop does not wait for the metadata service', () => {
  expect(seen.exitCode).toBe(0);
});

test('neither the tokens nor the metadata are logged', () => {
  expect(seen.log).toContain('ready');
  expect(seen.log).not.toMatch(/token-\d|session-|secret/);
});
