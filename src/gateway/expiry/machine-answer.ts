import { EnvdError, HttpError } from '../../base/errors.ts';
import { INTERFACE_VERSION } from '../../base/program/version.ts';
import type { Addresses } from '../access/addresses.ts';
import type { Machine } from '../leases/creation.ts';
import { DAEMON_PORT } from '../leases/sandbox.ts';

/** The answer of a hook that has made a machine. */
export interface MachineAnswer {
  readonly machine: Machine;
  /** These members are added to `POST /init` of the daemon. */
  readonly init: { readonly envVars?: object; readonly [more: string]: unknown };
}

interface Check {
  readonly wanted: string;
  accepts(value: unknown): boolean;
}

function textOf(form: RegExp, wanted: string): Check {
  return { wanted, accepts: (value) => typeof value === 'string' && form.test(value) };
}

function wholeUpTo(most: number): Check {
  const accepts = (value: unknown) =>
    Number.isSafeInteger(value) && Number(value) >= 1 && Number(value) <= most;
  return { wanted: `a whole number from 1 to ${most}`, accepts };
}

const SIZE = wholeUpTo(2 ** 31 - 1);

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The members of an answer have the same forms as those of a registration. */
const MEMBERS: Readonly<Record<string, Check>> = {
  address: textOf(/^[A-Za-z0-9._:-]{1,253}$/, 'a host name or an IP address'),
  port: wholeUpTo(65535),
  envdAccessToken: textOf(/^[\x20-\x7e\x80-\u{10ffff}]+$/u, 'text without control characters'),
  envdVersion: textOf(/^\d+\.\d+\.\d+$/, 'a version such as 1.2.3'),
  host: textOf(/^.{1,253}$/s, 'text of 1 to 253 characters'),
  alias: textOf(/^.{1,256}$/s, 'text of 1 to 256 characters'),
  cpuCount: SIZE,
  memoryMB: SIZE,
  diskSizeMB: SIZE,
  init: {
    wanted: 'an object, whose envVars are an object too',
    accepts: (value) => isObject(value) && isObject(value.envVars ?? {}),
  },
};

/**
 * Reads the answer of a hook that makes a machine. `{"address": …}` describes a machine. `{"error": TEXT, "code": 400 to 499, or 501}` is a
 * refusal, which is thrown as an `HttpError` for the client. Throws `failed_precondition` for anything else, and
 * `invalid_argument` for an address that is not allowed.
 * @param token the token of a machine whose hook names none
 */
export function readMachine(text: string, token: string, addresses: Pick<Addresses, 'admit'>): MachineAnswer {
  const answer = parseAnswer(text);
  if (typeof answer.error === 'string') throw hookRefusal(answer.error, answer.code);
  for (const [name, { wanted, accepts }] of Object.entries(MEMBERS))
    if (answer[name] !== undefined && !accepts(answer[name]))
      throw malformed(`member ${name} must be ${wanted}`);
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
    // The error below quotes the text that is not JSON.
  }
  throw malformed(`it is not a JSON object: '${text.slice(0, 200)}'`);
}

/** Returns the refusal of a hook for the client, with the status `otherwise` if `code` is none of a refusal. */
export function hookRefusal(message: string, code: unknown, otherwise = 400): HttpError {
  const isClients = Number.isInteger(code) && ((Number(code) >= 400 && Number(code) <= 499) || code === 501);
  return new HttpError(isClients ? Number(code) : otherwise, message.slice(0, 1000));
}

function malformed(reason: string): EnvdError {
  return new EnvdError('failed_precondition', `the answer of the hook cannot be used: ${reason}`);
}
