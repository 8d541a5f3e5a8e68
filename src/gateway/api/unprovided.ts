import { EnvdError, HttpError } from '../../base/errors.ts';
import type { PauseKeeps } from '../leases/sandbox.ts';
import type { CreateBody } from './schemas.ts';

/**
 * What a client asks for is done, or refused with 501. If it were dropped, the client would think that it was done, for
 * instance that a network is closed.
 */

/** Throws `unimplemented` if a body asks for anything but these members. */
export function assertOnly(body: object | null, ...known: readonly string[]): void {
  refuse(
    askedIn(body ?? {}).filter((name) => !known.includes(name)),
    'leave that out',
  );
}

/**
 * Throws `unimplemented` if a sandbox is to be resumed without its memory where no pause is without it.
 * @param member the client says so by this member
 */
export function assertWithMemory(
  memory: boolean | null | undefined,
  keeps: readonly PauseKeeps[],
  member = 'memory',
): void {
  if (memory !== false || keeps.includes('disk')) return;
  const message = `this gateway pauses and resumes sandboxes with their memory only: leave out ${member}: false`;
  throw new EnvdError('unimplemented', message);
}

/** Throws `unimplemented` if pauses cannot keep what this one is to keep. A client that names nothing counts on its memory. */
export function assertPausable(
  memory: boolean | null | undefined,
  keeps: readonly PauseKeeps[],
  member = 'memory',
): void {
  assertWithMemory(memory, keeps, member);
  if (memory === false || keeps.includes('memory')) return;
  const message = `this gateway pauses sandboxes without their memory only: ask for that with ${member}: false`;
  throw new EnvdError('unimplemented', message);
}

/** Throws `unimplemented` if no hook pauses machines. */
export function assertPauses(isByHook: boolean): void {
  if (isByHook) return;
  const message = 'this gateway has no --hook: it freezes expired sandboxes, but cannot pause their machines';
  throw new EnvdError('unimplemented', message);
}

/** The gateway itself provides these members of a creation. */
const PROVIDED = new Set([
  ...['templateID', 'timeout', 'metadata', 'envVars', 'idleTimeout', 'secure', 'autoPause'],
  ...['network.allowPublicTraffic', 'network.maskRequestHost', 'autoResume.enabled'],
]);

/** These members of `network` concern requests, so that no hook can provide them. */
const OF_REQUESTS: readonly string[] = ['network.httpsPorts'];

/**
 * Throws `unimplemented` if a creation asks for what neither the gateway nor the create hook provides.
 * @param byHook the hook provides these members; `network` stands for all members of `network`
 */
export function assertProvided(
  { autoPauseMemory, network, autoResume, ...body }: CreateBody,
  byHook: readonly string[],
  keeps: readonly PauseKeeps[],
): void {
  if (body.autoPause || autoPauseMemory === false) assertPausable(autoPauseMemory, keeps, 'autoPauseMemory');
  if (autoPauseMemory === false && autoResume?.enabled)
    throw new HttpError(400, 'autoResume cannot be combined with autoPauseMemory: false: ask to resume it');
  const isByHook = (name: string) =>
    !OF_REQUESTS.includes(name) && (byHook.includes(name) || byHook.includes(name.split('.', 1)[0] ?? ''));
  const inner = Object.entries({ network, autoResume }).flatMap(([name, members]) =>
    askedIn(members ?? {}).map((member) => `${name}.${member}`),
  );
  refuse(
    [...askedIn(body), ...inner].filter((name) => !PROVIDED.has(name) && !isByHook(name)),
    'leave that out, or name it in --create-options if the create hook provides it',
  );
}

/** Returns the names of the members that ask for something. An empty object or list asks for nothing. */
function askedIn(body: object): readonly string[] {
  const asks = (value: unknown) =>
    value !== null && value !== undefined && (typeof value !== 'object' || Object.keys(value).length > 0);
  return Object.entries(body).flatMap(([name, value]) => (asks(value) ? [name] : []));
}

function refuse(missing: readonly string[], advice: string): void {
  if (missing.length === 0) return;
  throw new EnvdError('unimplemented', `this gateway does not provide ${missing.join(', ')}: ${advice}`);
}
