import { EnvdError, HttpError } from '../../base/errors.ts';
import { INTERFACE_VERSION } from '../../base/program/version.ts';
import type { Addresses } from '../access/addresses.ts';
import type { Machine } from '../leases/creation.ts';
import { DAEMON_PORT } from '../leases/sandbox.ts';

/** What a create hook answers. */
export interface MachineAnswer {
  readonly machine: Machine;
  /** More members for `POST /init` of the daemon. */
  readonly init: { readonly envVars?: object; readonly [more: string]: unknown };
}

type Check = (value: unknown) => boolean;
const isText =
  (form: RegExp): Check =>
  (value) =>
    typeof value === 'string' && form.test(value);
const isWhole =
  (most: number): Check =>
  (value) =>
    Number.isSafeInteger(value) && Number(value) >= 1 && Number(value) <= most;
const isSize = isWhole(2 ** 31 - 1);
function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The members of an answer, as those of a registration. */
const MEMBERS: Readonly<Record<string, Check>> = {
  address: isText(/^[A-Za-z0-9._:-]{1,253}$/),
  port: isWhole(65535),
  envdAccessToken: isText(/^[\x20-\x7e\x80-\u{10ffff}]+$/u),
  envdVersion: isText(/^\d+\.\d+\.\d+$/),
  host: isText(/^.{1,253}$/s),
  alias: isText(/^.{1,256}$/s),
  cpuCount: isSize,
  memoryMB: isSize,
  diskSizeMB: isSize,
  init: (value) => isObject(value) && isObject(value.envVars ?? {}),
};

/**
 * Reads the answer of a create hook: `{"address": …}`, or `{"error": TEXT, "code": 400 to 499}`, which is thrown as it is for the client.
 * Throws `failed_precondition` when it is neither.
 * @param token for a machine whose hook names none
 */
export function readMachine(text: string, token: string, addresses: Pick<Addresses, 'admit'>): MachineAnswer {
  const answer = parseAnswer(text);
  if (typeof answer.error === 'string') throw refusalOf(answer.error, answer.code);
  for (const [name, isRight] of Object.entries(MEMBERS))
    if (answer[name] !== undefined && !isRight(answer[name])) throw malformed(`member ${name} is malformed`);
  if (answer.address === undefined) throw malformed('member address is missing');
  const known = ['host', 'alias', 'cpuCount', 'memoryMB', 'diskSizeMB'] as const;
  const described = Object.fromEntries(
    known.flatMap((name) => (name in answer ? [[name, answer[name]]] : [])),
  );
  const machine: Machine = {
    ...described,
    ...addresses.admit(String(answer.address)),
    port: Number(answer.port ?? DAEMON_PORT),
    accessToken: String(answer.envdAccessToken ?? token),
    envdVersion: String(answer.envdVersion ?? INTERFACE_VERSION),
  };
  return { machine, init: (answer.init ?? {}) as MachineAnswer['init'] };
}

function parseAnswer(text: string): Readonly<Record<string, unknown>> {
  try {
    const answer: unknown = JSON.parse(text);
    if (isObject(answer)) return answer;
  } catch {
    // The error below quotes what came instead of JSON.
  }
  throw malformed(`it is no JSON object: '${text.slice(0, 200)}'`);
}

function refusalOf(message: string, code: unknown): HttpError {
  const isClients = Number.isInteger(code) && Number(code) >= 400 && Number(code) <= 499;
  return new HttpError(isClients ? Number(code) : 400, message.slice(0, 1000));
}

function malformed(reason: string): EnvdError {
  return new EnvdError('failed_precondition', `the answer of the create hook is not usable: ${reason}`);
}
