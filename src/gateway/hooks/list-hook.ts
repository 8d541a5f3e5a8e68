import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { EnvdError } from '../../base/errors.ts';
import { SANDBOX_ID } from '../leases/sandbox.ts';
import type { Signer } from './signer.ts';

/** A list may have this many bytes. */
const LIST_LIMIT = 16 * 1024 ** 2;

export interface ListHookOptions {
  /** A shell command or a URL. */
  readonly hook: string;
  /** The hook must end within this time, in ms. */
  readonly limitMs: number;
  readonly path: string;
  readonly signer: Signer;
}

/**
 * Asks which machines exist, running or paused. Returns the ids of their sandboxes. Throws `failed_precondition` or
 * `unavailable` for a list that is not complete, because a machine that is missing from a list seems to be lost.
 */
export async function listMachines(
  options: ListHookOptions,
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const limited = AbortSignal.any([signal, AbortSignal.timeout(options.limitMs)]);
  const isUrl = /^https?:\/\//.test(options.hook);
  const text = await (isUrl ? fetchList(options, limited) : runList(options, limited));
  const ids = text.split('\n').flatMap((line) => line.trim() || []);
  const malformed = ids.find((id) => !SANDBOX_ID.test(id));
  if (malformed === undefined) return new Set(ids);
  throw refusal(`a line must be the id of a sandbox, not '${malformed.slice(0, 64)}'`);
}

async function fetchList({ hook, signer }: ListHookOptions, signal: AbortSignal): Promise<string> {
  const body = JSON.stringify({ event: 'list' });
  const headers = { 'content-type': 'application/json', ...signer.headersFor(randomUUID(), body) };
  const response = await fetch(hook, { method: 'POST', body, headers, signal, redirect: 'error' });
  if (!response.ok || !response.body) throw refusal(`it answered ${response.status}`);
  return textOf(response.body);
}

async function runList({ hook, path }: ListHookOptions, signal: AbortSignal): Promise<string> {
  const child = spawn('sh', ['-c', hook], {
    // The process group is ended as a whole.
    detached: true,
    stdio: ['ignore', 'pipe', 'ignore'],
    env: { PATH: path, EVENT: 'list' },
  });
  const end = () => {
    try {
      process.kill(-(child.pid ?? 0), 'SIGKILL');
    } catch {
      // The group has ended already.
    }
  };
  signal.addEventListener('abort', end, { once: true });
  try {
    const [text, [code]] = await Promise.all([textOf(child.stdout), once(child, 'exit')]);
    signal.throwIfAborted();
    if (code === 0) return text;
    throw refusal(`its exit code is ${code}`);
  } finally {
    signal.removeEventListener('abort', end);
    if (child.exitCode === null) end();
  }
}

async function textOf(body: AsyncIterable<Uint8Array>): Promise<string> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of body) {
    bytes += piece.length;
    if (bytes > LIST_LIMIT) throw refusal(`it is longer than ${LIST_LIMIT} bytes`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString();
}

function refusal(reason: string): EnvdError {
  return new EnvdError('failed_precondition', `the answer of the list hook cannot be used: ${reason}`);
}
