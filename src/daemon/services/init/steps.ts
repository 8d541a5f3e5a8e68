import { hash } from 'node:crypto';
import { isIP } from 'node:net';
import { EnvdError, messageOf } from '../../../base/errors.ts';
import { debug } from '../../../base/program/debug.ts';
import { equalSecrets } from '../../../base/program/secrets.ts';
import { readIfPresent, replaceTextFile } from '../../linux/files/text-file.ts';
import type { Guest } from '../guest/guest.ts';
import type { FilesystemFreezer } from '../pause/filesystem-freezer.ts';
import type { Freezer } from '../pause/freezer.ts';
import { type TrustStore, trust, trustVariables } from './ca-bundle.ts';
import type { InitCall, InitSteps, LastingStep, QuickStep } from './init.ts';
import type { InitRequest } from './init-request.ts';
import type { MetadataReader } from './metadata-reader.ts';
import type { Volumes } from './volumes.ts';

export interface Clock {
  /** The time in nanoseconds since the epoch. */
  nowNs(): bigint;
  setNs(timeNs: bigint): void;
}

export interface InitDependencies {
  readonly guest: Guest;
  /** Null when there is no metadata service. */
  readonly metadata: Pick<MetadataReader, 'check' | 'refresh'> | null;
  readonly freezer: Pick<Freezer, 'audit' | 'takeAudit' | 'keepAudit' | 'thaw'>;
  readonly filesystemFreezer: Pick<FilesystemFreezer, 'mayBeFrozen' | 'release'>;
  readonly clock: Clock;
  readonly onClockError: (error: unknown) => void;
  /** Makes the kernel's random generator differ from that of other clones of a snapshot. */
  readonly reseed: (seed: string) => void;
  readonly trustStore: TrustStore;
  /** The path of hosts(5), and the host name of the platform's hyperloop. */
  readonly hosts: { readonly file: string; readonly name: string };
  /** The name of the variable that tells programs of the guest the URL of the hyperloop, to which they send events. */
  readonly eventsVariable: string;
  readonly volumes: Pick<Volumes, 'mount'>;
}

export function initSteps(dependencies: InitDependencies): InitSteps {
  const { guest, metadata, freezer } = dependencies;
  return {
    authorize: (call) => authorize(guest, metadata, call),
    freezer,
    quick: quickSteps(dependencies),
    lasting: lastingSteps(dependencies),
  };
}

function quickSteps(dependencies: InitDependencies): QuickStep[] {
  const { guest, metadata, freezer, clock, onClockError } = dependencies;
  let lastLifecycleID: string | null = null;
  const unlessStale = (name: string, run: QuickStep['run']): QuickStep => ({
    name,
    runs: 'unless stale',
    run,
  });
  const always = (name: string, run: QuickStep['run']): QuickStep => ({ name, runs: 'always', run });
  return [
    unlessStale('clock', (call) => {
      try {
        setClock(clock, call);
      } catch (error) {
        onClockError(error);
      }
    }),
    unlessStale('environment', ({ request: { environment, hyperloopIP } }) => {
      if (environment !== null) guest.environment = environment;
      // The step that writes the hosts entry refuses what is no address.
      if (hyperloopIP !== null && isIP(hyperloopIP) !== 0)
        guest.changeOwnVariables({ [dependencies.eventsVariable]: urlOf(hyperloopIP) });
    }),
    // A request without a token clears it, which opens every operation, or closes it if the guest requires a token.
    unlessStale('token', ({ request }) => {
      guest.accessToken = request.accessToken;
    }),
    unlessStale('defaults', (call) => setDefaults(guest, call)),
    unlessStale('identity', ({ request }) => {
      // Another id means that the guest was resumed: the metadata may be those of another sandbox.
      if (request.lifecycleID === lastLifecycleID) return;
      lastLifecycleID = request.lifecycleID;
      metadata?.refresh();
      reseed(dependencies.reseed, request);
    }),
    // The workload goes on only when everything else is ready for it. It also goes on after a step that failed.
    always('thaw', () => freezer.thaw()),
  ];
}

function lastingSteps({
  guest,
  filesystemFreezer,
  trustStore,
  hosts,
  volumes,
}: InitDependencies): LastingStep[] {
  /** Returns a step that runs after a thaw of the file system, because writing to a frozen one blocks. */
  const whenThawed = (name: string, wanted: LastingStep['wanted'], run: LastingStep['run']): LastingStep => ({
    name,
    wanted,
    runs: 'unless stale',
    async run(request) {
      await filesystemFreezer.release();
      await run(request);
    },
  });
  return [
    {
      name: 'fsthaw',
      runs: 'always',
      wanted: () => (filesystemFreezer.mayBeFrozen ? '' : null),
      run: () => filesystemFreezer.release(),
    },
    whenThawed(
      'CA bundle',
      ({ caBundle }) => caBundle,
      async ({ caBundle }) => {
        await trust(caBundle ?? '', trustStore);
        guest.replaceDefaults(trustVariables(trustStore));
      },
    ),
    whenThawed(
      'hosts entry',
      ({ hyperloopIP }) => hyperloopIP,
      ({ hyperloopIP }) => writeHostsEntry(hyperloopIP ?? '', hosts),
    ),
    // The id makes volumes be mounted again after each resume, because their connections are gone.
    whenThawed(
      'volumes',
      ({ volumeMounts, lifecycleID }) => volumeMounts && { volumeMounts, lifecycleID },
      ({ volumeMounts, lifecycleID }) => volumes.mount(volumeMounts ?? [], lifecycleID),
    ),
  ];
}

/** Returns the URL of an address. IPv6 addresses are put in brackets: RFC 3986, section 3.2.2. */
function urlOf(address: string): string {
  return isIP(address) === 6 ? `http://[${address}]` : `http://${address}`;
}

/**
 * Mixes what the platform sends to this clone alone into the random generator. It runs before the thaw, so that the workload
 * gets other bytes than that of another clone. A failure is ignored, because the guest works without it.
 */
function reseed(
  mix: InitDependencies['reseed'],
  { lifecycleID, timestampNs, accessToken }: InitRequest,
): void {
  try {
    mix(JSON.stringify([lifecycleID, String(timestampNs), accessToken]));
    debug('init', 'random generator reseeded');
  } catch (error) {
    debug('init', 'cannot reseed the random generator', () => ({ reason: messageOf(error) }));
  }
}

/**
 * Authorizes a request. It is allowed if its token is the one that is set, or if the metadata service has the hash of its
 * token (SHA-512 in hex; that of the empty string for no token), or if there is neither a token nor a hash. In the last case, a
 * guest that requires a token must get one: a success would say that clients are served. Throws `unauthenticated` otherwise, and
 * `unavailable` if the metadata cannot be read.
 */
async function authorize(
  guest: Guest,
  metadata: InitDependencies['metadata'],
  { request: { accessToken }, caller }: InitCall,
): Promise<void> {
  const current = guest.accessToken;
  if (current !== null && accessToken !== null && equalSecrets(accessToken, current)) return;
  const accepts = (expected: string | null) =>
    expected === null
      ? guest.isOpen || (guest.accessToken === null && accessToken !== null)
      : equalSecrets(hash('sha512', accessToken ?? ''), expected.toLowerCase());
  const isAccepted = metadata
    ? await metadata.check(({ accessTokenHash }) => accepts(accessTokenHash), caller.signal)
    : accepts(null);
  if (isAccepted) return;
  throw new EnvdError('unauthenticated', refusal(guest, accessToken));
}

/** Returns the message of the refusal of a request with this token. */
function refusal({ accessToken: current }: Guest, shown: string | null): string {
  if (shown !== null) return 'unauthorized access, the access token does not match';
  if (current !== null) return 'unauthorized access, resetting the access token is not allowed';
  return 'unauthorized access, the daemon requires an access token: this call must set it';
}

const BEHIND_NS = 50_000_000n;
const MOST_AHEAD_NS = -5_000_000_000n;

/**
 * Sets the clock if it is more than 50 ms behind, as after a pause, or 5 s ahead. The second limit is larger, because the
 * request was on its way for some time, and programs do not expect the clock to go back. A repeated request does not set it,
 * because its timestamp is past.
 */
function setClock(clock: Clock, { request: { timestampNs }, isRepeated, ageNs }: InitCall): void {
  if (timestampNs === null || isRepeated) return;
  const target = timestampNs + ageNs();
  const behind = target - clock.nowNs();
  if (behind > BEHIND_NS || behind < MOST_AHEAD_NS) clock.setNs(target);
}

/** Sets the default user and directory; absent members leave them unchanged. */
function setDefaults(guest: Guest, { request: { defaultUser, defaultWorkdir } }: InitCall): void {
  // The user need not exist yet, because each request looks it up.
  guest.defaultUser = defaultUser ?? guest.defaultUser;
  guest.defaultWorkdir = defaultWorkdir ?? guest.defaultWorkdir;
}

/** Marks the daemon's line, so that the next call finds it. */
const MARK = '# envd';

/** Writes the entry of hosts(5), which replaces that of the previous call. */
async function writeHostsEntry(address: string, { file, name }: InitDependencies['hosts']): Promise<void> {
  if (isIP(address) === 0) {
    throw new EnvdError('invalid_argument', `hyperloopIP must be an IP address: '${address}'`);
  }
  const current = (await readIfPresent(file)) ?? '';
  const kept = current.split('\n').filter((line) => line !== '' && !line.endsWith(MARK));
  const next = [...kept, `${address}\t${name} ${MARK}`, ''].join('\n');
  if (next !== current) await replaceTextFile(file, next);
}
