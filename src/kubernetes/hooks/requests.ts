import { EnvdError, messageOf } from '../../base/errors.ts';
import {
  integer,
  list,
  object,
  requiredText,
  type Shape,
  string,
  text,
  type ValuesOf,
} from '../../base/shape.ts';
import type { Frozen, Machines, Made } from '../machines/machines.ts';

const MOST = 2 ** 31;

const FREEZE: Shape<Frozen> = object({ frozen: integer(0, MOST, 0), notFrozen: integer(0, MOST, 0) });

/** What a hook is told, as far as it counts here (docs/gateway.md). */
const MEMBERS = {
  event: requiredText,
  outcome: text,
  sandboxID: text,
  templateID: text,
  owner: text,
  quota: orNull(object({ cpu: integer(1, MOST, null), memory: integer(1, MOST, null) })),
  drainedHosts: list(string),
  freeze: orNull(FREEZE),
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
  const { event, outcome, templateID, owner, quota, drainedHosts, freeze } = body;
  if (event === 'list')
    return machines
      .list()
      .map((id) => `${id}\n`)
      .join('');
  const sandbox = body.sandboxID ?? '';
  if (sandbox === '') throw new EnvdError('invalid_argument', 'sandboxID must be a string that is not empty');
  if (event === 'create')
    return machines.create({
      sandbox,
      template: templateID ?? '',
      owner,
      quota: quota ?? { cpu: null, memory: null },
      drained: drainedHosts ?? [],
    });
  if (event === 'kill' || (event === 'expire' && outcome === 'remove')) await machines.kill(sandbox);
  else if (event === 'expire') machines.pause(sandbox, freeze);
  else if (event === 'resume') await machines.resume(sandbox);
  else throw new EnvdError('unimplemented', `this program has no hook '${event}'`);
  return '';
}
