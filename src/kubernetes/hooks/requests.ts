import { EnvdError, HttpError, messageOf } from '../../base/errors.ts';
import {
  integer,
  invalid,
  list,
  object,
  requiredText,
  type Shape,
  string,
  text,
  type ValuesOf,
} from '../../base/shape.ts';
import type { Machines, Made, PauseRequest, Wanted } from '../machines/machines.ts';
import type { AskedNetwork } from '../pods/egress.ts';

const MOST = 2 ** 31;

const orBoolean: Shape<boolean | null> = {
  schema: { type: 'boolean' },
  read(value, name) {
    if (value === undefined || value === null) return null;
    if (typeof value !== 'boolean') throw invalid(name, 'true or false');
    return value;
  },
};
/** What a client has asked for, as far as `--create-options` of the gateway names it. */
const ASKED: Shape<AskedNetwork> = object({
  allow_internet_access: orBoolean,
  network: orNull(object({ allowOut: list(string), denyOut: list(string) })),
});
/** What a client has written is read where it can be told what is wrong. */
const UNREAD: Shape<unknown> = { schema: {}, read: (value) => value };
const FREEZE: Shape<NonNullable<PauseRequest['freeze']>> = object({
  frozen: integer(0, MOST, 0),
  notFrozen: integer(0, MOST, 0),
});

/** What a hook is told, as far as it counts here (docs/gateway.md). */
const MEMBERS = {
  event: requiredText,
  outcome: text,
  sandboxID: text,
  templateID: text,
  owner: text,
  quota: orNull(object({ cpu: integer(1, MOST, null), memory: integer(1, MOST, null) })),
  drainedHosts: list(string),
  request: UNREAD,
  freeze: orNull(FREEZE),
  memory: orBoolean,
};
const REQUEST = object(MEMBERS);

export type HookBody = ValuesOf<typeof MEMBERS>;

function orNull<T>({ schema, read }: Shape<T>): Shape<T | null> {
  return {
    schema,
    read: (value, name) => (value === undefined || value === null ? null : read(value, name)),
  };
}

/** Reads the request of a hook. Throws `invalid_argument`. */
export function readHookBody(body: string): HookBody {
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch (error) {
    throw new EnvdError('invalid_argument', `the body is not JSON: ${messageOf(error)}`);
  }
  return REQUEST.read(value, '');
}

/** Does what a hook is asked for. Returns the body of the answer. */
export async function answerHook(machines: Machines, body: HookBody): Promise<Made | string> {
  const { event } = body;
  if (event === 'list') return (await machines.list()).map((line) => `${line}\n`).join('');
  if ((body.sandboxID ?? '') === '')
    throw new EnvdError('invalid_argument', 'sandboxID must be a string that is not empty');
  if (event === 'create') return machines.create(wantedOf(body));
  return (await changeMachine(machines, body)) ?? '';
}

function wantedOf({ sandboxID, templateID, owner, quota, drainedHosts, request }: HookBody): Wanted {
  return {
    sandbox: sandboxID ?? '',
    template: templateID ?? '',
    owner,
    quota: quota ?? { cpu: null, memory: null },
    drained: drainedHosts ?? [],
    network: askedOf(request),
  };
}

function askedOf(request: unknown): AskedNetwork | null {
  try {
    return orNull(ASKED).read(request, '');
  } catch (error) {
    throw new HttpError(400, messageOf(error));
  }
}

/** Returns the machine that a resume has made, if it has made one. */
async function changeMachine(machines: Machines, body: HookBody): Promise<Made | null> {
  const { event, outcome, drainedHosts, freeze } = body;
  const [sandbox, memory] = [body.sandboxID ?? '', body.memory !== false];
  if (event === 'kill' || (event === 'expire' && outcome === 'remove')) await machines.kill(sandbox);
  else if (event === 'expire') await machines.pause(sandbox, { freeze, memory });
  else if (event !== 'resume') throw new EnvdError('unimplemented', `this program has no hook '${event}'`);
  else if (memory) await machines.resume(sandbox);
  else return machines.restore(sandbox, drainedHosts ?? []);
  return null;
}
