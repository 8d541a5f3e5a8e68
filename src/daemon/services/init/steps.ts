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

/** Dependencies of the steps of /init. */
export interface InitDependencies {
  readonly guest: Guest;
  /** Null without a metadata service. */
  readonly metadata: Pick<MetadataReader, 'fresh'> | null;
  readonly freezer: Pick<Freezer, 'audit' | 'thaw'>;
  readonly filesystemFreezer: Pick<FilesystemFreezer, 'release'>;
  readonly clock: Clock;
  readonly trustStore: TrustStore;
  /** Path of hosts(5), and the host name of the platform's hyperloop. */
  readonly hosts: { readonly file: string; readonly name: string };
  readonly volumes: Volumes;
}

/** The steps of /init, in order of execution. */
export function initSteps(dependencies: InitDependencies): readonly InitStep[] {
  const { guest, metadata, freezer, filesystemFreezer, clock, trustStore, hosts, volumes } = dependencies;
  const unlessStale = (name: string, run: InitStep['run']): InitStep => ({ name, runs: 'unless stale', run });
  const always = (name: string, run: InitStep['run']): InitStep => ({ name, runs: 'always', run });
  return [
    { name: 'auth', runs: 'first', run: (call) => authorize(guest, metadata, call) },
    // Before the thaw, which changes what the audit reports.
    always('audit', ({ report }) => {
      report.freezeAudit = freezer.audit();
    }),
    // Before the steps that write to the file system, which would block while it is frozen.
    always('fsthaw', () => filesystemFreezer.release()),
    unlessStale('clock', (call) => setClock(clock, call)),
    unlessStale('environment', (call) => setEnvironment(guest, metadata, call)),
    // A request without a token opens every operation.
    unlessStale('token', ({ request }) => {
      guest.accessToken = request.accessToken;
    }),
    unlessStale('defaults', (call) => setDefaults(guest, call)),
    unlessStale('CA bundle', async ({ request: { caBundle } }) => {
      if (caBundle !== null) await trust(caBundle, trustStore);
    }),
    unlessStale('hosts entry', async ({ request: { hyperloopIP } }) => {
      if (hyperloopIP !== null) await writeHostsEntry(hyperloopIP, hosts);
    }),
    // Mounted again after each resume: its connections are gone.
    unlessStale('volumes', async ({ request: { volumeMounts, lifecycleID } }) => {
      if (volumeMounts !== null) await volumes.mount(volumeMounts, lifecycleID);
    }),
    // Last, when everything is ready for the workload; also after a failed step.
    always('thaw', () => freezer.thaw()),
  ];
}

/**
 * Authorises the request. Passes if its token is the one that is set; or if the metadata service has the hash of its
 * token (SHA-512 in hex; of the empty string for no token); or if there is neither a token nor a hash. Throws
 * `unauthenticated` otherwise, `unavailable` if the metadata cannot be read.
 */
async function authorize(
  guest: Guest,
  metadata: InitDependencies['metadata'],
  { request: { accessToken }, ageNs }: InitCall,
): Promise<void> {
  const current = guest.accessToken;
  if (current !== null && accessToken !== null && equalSecrets(accessToken, current)) return;
  const expectedHash = metadata ? (await metadata.fresh(ageNs())).accessTokenHash : null;
  if (expectedHash === null && current === null) return;
  if (expectedHash !== null && equalSecrets(hash('sha512', accessToken ?? ''), expectedHash.toLowerCase()))
    return;
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
 * Sets the clock if it is more than 50 ms behind, as after a pause, or 5 s ahead. More tolerant ahead: the request was
 * in transit for some time, and programs do not expect the clock to go back.
 */
function setClock(clock: Clock, { request: { timestampNs }, ageNs }: InitCall): void {
  if (timestampNs === null) return;
  const target = timestampNs + ageNs();
  const behind = target - clock.nowNs();
  if (behind > BEHIND_NS || behind < -AHEAD_NS) clock.setNs(target);
}

/** Replaces the variables of the previous request; the daemon's own take precedence. */
async function setEnvironment(
  guest: Guest,
  metadata: InitDependencies['metadata'],
  { request: { environment }, ageNs }: InitCall,
): Promise<void> {
  // Updates the daemon's own variables; if the metadata cannot be read, they stay as they are.
  await metadata?.fresh(ageNs()).catch(() => {});
  if (environment !== null) guest.environment = environment;
}

/** Sets the default user and directory; absent members leave them unchanged. */
function setDefaults(guest: Guest, { request: { defaultUser, defaultWorkdir } }: InitCall): void {
  // The user need not exist yet: it is looked up for each request.
  guest.defaultUser = defaultUser ?? guest.defaultUser;
  guest.defaultWorkdir = defaultWorkdir ?? guest.defaultWorkdir;
}

/** Ends the daemon's line, so that the next call finds it. */
const MARK = '# envd';

/** Writes the hosts(5) entry, replacing that of the previous call. */
async function writeHostsEntry(address: string, { file, name }: InitDependencies['hosts']): Promise<void> {
  if (isIP(address) === 0) {
    throw new EnvdError('invalid_argument', `hyperloopIP must be an IP address: '${address}'`);
  }
  const current = (await readIfPresent(file)) ?? '';
  const kept = current.split('\n').filter((line) => line !== '' && !line.endsWith(MARK));
  const next = [...kept, `${address}\t${name} ${MARK}`, ''].join('\n');
  if (next !== current) await replaceFile(file, next);
}
