import { EnvdError } from '../../base/errors.ts';
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

/** Throws `unimplemented` if a sandbox is to be paused or resumed without its memory. */
export function assertWithMemory(body: { readonly memory?: boolean | null } | null): void {
  if (body?.memory !== false) return;
  const message = 'this gateway pauses and resumes sandboxes with their memory only: leave out memory: false';
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
): void {
  const isByHook = (name: string) =>
    !OF_REQUESTS.includes(name) && (byHook.includes(name) || byHook.includes(name.split('.', 1)[0] ?? ''));
  const inner = Object.entries({ network, autoResume }).flatMap(([name, members]) =>
    askedIn(members ?? {}).map((member) => `${name}.${member}`),
  );
  refuse(
    [
      ...(autoPauseMemory === false ? ['autoPauseMemory: false'] : []),
      ...[...askedIn(body), ...inner].filter((name) => !PROVIDED.has(name) && !isByHook(name)),
    ],
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
