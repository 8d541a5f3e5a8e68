import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { EnvdError } from '../../base/errors.ts';
import type { Signer } from './signer.ts';

export interface AskOptions {
  /** A shell command or a URL. */
  readonly hook: string;
  /** The hook must end within this time, in ms. */
  readonly limitMs: number;
  readonly path: string;
  readonly signer: Signer;
}

/** A hook is asked this, and answers with text. */
export interface HookQuestion {
  readonly event: 'list' | 'extend';
  readonly [more: string]: unknown;
}

/**
 * Asks a hook that changes nothing, so that it may be asked again. A command gets the question on its standard input, a URL as
 * the body of a POST. Throws `failed_precondition` if the hook fails, or answers with more than `most` bytes, and the reason of a
 * signal that aborts.
 */
export async function askHook(
  options: AskOptions,
  question: HookQuestion,
  most: number,
  signal: AbortSignal,
): Promise<string> {
  const limited = AbortSignal.any([signal, AbortSignal.timeout(options.limitMs)]);
  const isUrl = /^https?:\/\//.test(options.hook);
  return (isUrl ? post : run)(options, question, most, limited);
}

async function post(
  { hook, signer }: AskOptions,
  question: HookQuestion,
  most: number,
  signal: AbortSignal,
): Promise<string> {
  const body = JSON.stringify(question);
  const headers = { 'content-type': 'application/json', ...signer.headersFor(randomUUID(), body) };
  const response = await fetch(hook, { method: 'POST', body, headers, signal, redirect: 'error' });
  if (!response.ok) {
    void response.body?.cancel().catch(() => {});
    throw refusal(question, `it answered ${response.status}`);
  }
  return response.body ? textOf(response.body, question, most) : '';
}

async function run(
  { hook, path }: AskOptions,
  question: HookQuestion,
  most: number,
  signal: AbortSignal,
): Promise<string> {
  const child = spawn('sh', ['-c', hook], {
    // The process group is ended as a whole.
    detached: true,
    stdio: ['pipe', 'pipe', 'ignore'],
    env: { PATH: path, EVENT: question.event },
  });
  const { pid } = child;
  // A process that was not started has no group, and no streams if no descriptor is free.
  if (pid === undefined) {
    const [error] = await once(child, 'error');
    throw error;
  }
  const end = () => {
    try {
      process.kill(-pid, 'SIGKILL');
    } catch {
      // The group has ended already.
    }
    // A process that has left the group may keep the output open.
    child.stdout.destroy(signal.reason);
  };
  signal.addEventListener('abort', end, { once: true });
  // A command that does not read its input is no failure.
  child.stdin.on('error', () => {}).end(`${JSON.stringify(question)}\n`);
  try {
    const [text, [code]] = await Promise.all([textOf(child.stdout, question, most), once(child, 'exit')]);
    signal.throwIfAborted();
    if (code === 0) return text;
    throw refusal(question, `its exit code is ${code}`);
  } finally {
    signal.removeEventListener('abort', end);
    if (child.exitCode === null) end();
  }
}

async function textOf(
  body: AsyncIterable<Uint8Array>,
  question: HookQuestion,
  most: number,
): Promise<string> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of body) {
    bytes += piece.length;
    if (bytes > most) throw refusal(question, `it is longer than ${most} bytes`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString();
}

/** Returns the error for an answer that cannot be used. */
export function refusal({ event }: HookQuestion, reason: string): EnvdError {
  return new EnvdError('failed_precondition', `the answer of the ${event} hook cannot be used: ${reason}`);
}
