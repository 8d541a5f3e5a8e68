import { hash } from 'node:crypto';
import { isIP } from 'node:net';
import { EnvdError } from '../../../base/errors.ts';
import { equalSecrets } from '../../../base/secrets.ts';
import { readIfPresent, replaceFile } from '../../os/text-file.ts';
import type { FilesystemFreezer } from '../freeze/filesystem-freezer.ts';
import type { Freezer } from '../freeze/freezer.ts';
import type { Guest } from '../guest/guest.ts';
import { type TrustStore, trust } from './ca-bundle.ts';
import type { InitCall, InitStep } from './init.ts';
import type { MetadataReader } from './metadata.ts';
import type { Volumes } from './volumes.ts';

/** The guest's wall clock. */
export interface Clock {
  /** Since the epoch. */
  nowNs(): bigint;
  setNs(timeNs: bigint): void;
}

/** What the steps of /init work on. */
export interface InitSurroundings {
  readonly guest: Guest;
  /** Null when there is no metadata service. */
  readonly metadata: Pick<MetadataReader, 'fresh'> | null;
  readonly freezer: Pick<Freezer, 'audit' | 'thaw'>;
  readonly filesystemFreezer: Pick<FilesystemFreezer, 'release'>;
  readonly clock: Clock;
  readonly trustStore: TrustStore;
  /** hosts(5), and the name that the platform's hyperloop gets in it. */
  readonly hosts: { readonly file: string; readonly name: string };
  readonly volumes: Volumes;
}

/** What /init does, in this order. */
export function initSteps(surroundings: InitSurroundings): readonly InitStep[] {
  const { guest, metadata, freezer, filesystemFreezer, clock, trustStore, hosts, volumes } = surroundings;
  const unlessStale = (name: string, run: InitStep['run']): InitStep => ({ name, runs: 'unless stale', run });
  const always = (name: string, run: InitStep['run']): InitStep => ({ name, runs: 'always', run });
  return [
    { name: 'auth', runs: 'first', run: (call) => authorize(guest, metadata, call) },
    // While it can still be seen what has become of a freeze.
    always('audit', ({ report }) => {
      report.freezeAudit = freezer.audit();
    }),
    // Before the steps that write to the file system, which would wait for the last step otherwise.
    always('fsthaw', () => filesystemFreezer.release()),
    unlessStale('clock', (call) => setClock(clock, call)),
    unlessStale('environment', (call) => setEnvironment(guest, metadata, call)),
    // A request without one opens every operation.
    unlessStale('token', ({ request }) => {
      guest.accessToken = request.accessToken;
    }),
    unlessStale('defaults', (call) => setDefaults(guest, call)),
    unlessStale('CA bundle', async ({ request: { caBundle } }) => {
      if (caBundle !== null) await trust(caBundle, trustStore);
    }),
    unlessStale('hosts entry', async ({ request: { hyperloopIP } }) => {
      if (hyperloopIP !== null) await nameAddress(hyperloopIP, hosts);
    }),
    // Again for each life of the guest, whose connections are new.
    unlessStale('volumes', async ({ request: { volumeMounts, lifecycleID } }) => {
      if (volumeMounts !== null) await volumes.mount(volumeMounts, lifecycleID);
    }),
    // The workload goes on when everything is ready for it, and whatever has gone wrong.
    always('thaw', () => freezer.thaw()),
  ];
}

/**
 * Whether the request may change the guest: it repeats the token that is set; or the metadata service has the hash of
 * its token (SHA-512 in hex; of the empty string: for none); or there is neither a token nor a hash yet. Throws
 * `unauthenticated` when it may not, `unavailable` when that cannot be known.
 */
async function authorize(
  guest: Guest,
  metadata: InitSurroundings['metadata'],
  { request: { accessToken }, ageNs }: InitCall,
): Promise<void> {
  const current = guest.accessToken;
  if (current !== null && accessToken !== null && equalSecrets(accessToken, current)) return;
  const vouched = metadata ? (await metadata.fresh(ageNs())).accessTokenHash : null;
  if (vouched === null && current === null) return;
  if (vouched !== null && equalSecrets(hash('sha512', accessToken ?? ''), vouched.toLowerCase())) return;
  throw new EnvdError(
    'unauthenticated',
    accessToken === null
      ? 'unauthorized access, resetting the access token is not allowed'
      : 'unauthorized access, the access token does not match',
  );
}

const BEHIND_NS = 50_000_000n;
const AHEAD_NS = 5_000_000_000n;

/**
 * Sets a clock that a pause has left behind. One that is ahead is left alone for longer: the request itself was
 * under way for some time, and setting a clock back harms programs.
 */
function setClock(clock: Clock, { request: { timestampNs }, ageNs }: InitCall): void {
  if (timestampNs === null) return;
  const target = timestampNs + ageNs();
  const behind = target - clock.nowNs();
  if (behind > BEHIND_NS || behind < -AHEAD_NS) clock.setNs(target);
}

/** The request's variables replace those of the request before; the daemon's own stay and win. */
async function setEnvironment(
  guest: Guest,
  metadata: InitSurroundings['metadata'],
  { request: { environment }, ageNs }: InitCall,
): Promise<void> {
  // Brings the daemon's own up to date; without an answer they stay as they were told last.
  await metadata?.fresh(ageNs()).catch(() => {});
  if (environment !== null) guest.environment = environment;
}

/** The user and the directory of calls that name none; what the request does not tell stays as it is. */
function setDefaults(guest: Guest, { request: { defaultUser, defaultWorkdir } }: InitCall): void {
  // The user need not exist yet: it is looked up when a call is made.
  guest.defaultUser = defaultUser ?? guest.defaultUser;
  guest.defaultWorkdir = defaultWorkdir ?? guest.defaultWorkdir;
}

/** Ends the line that is ours, so that the next call finds it. */
const MARK = '# envd';

/** Gives an address a name, in place of the one before. */
async function nameAddress(address: string, { file, name }: InitSurroundings['hosts']): Promise<void> {
  if (isIP(address) === 0) {
    throw new EnvdError('invalid_argument', `hyperloopIP must be an IP address: '${address}'`);
  }
  const current = (await readIfPresent(file)) ?? '';
  const kept = current.split('\n').filter((line) => line !== '' && !line.endsWith(MARK));
  const next = [...kept, `${address}\t${name} ${MARK}`, ''].join('\n');
  if (next !== current) await replaceFile(file, next);
}
