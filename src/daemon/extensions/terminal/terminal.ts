import { Writable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { EnvdError } from '../../../base/errors.ts';
import type { CallScope } from '../../http/admission/call-scope.ts';
import type { Extension } from '../../http/extension.ts';
import { callerOf } from '../../http/protocol/request.ts';
import type { OpenedSocket } from '../../http/websocket/upgrades.ts';
import type { Guest } from '../../services/guest/guest.ts';
import type { EndedProcess } from '../../services/process/lifecycle/ended.ts';
import { ManagedProcess } from '../../services/process/lifecycle/process.ts';
import { requireExecutable } from '../../services/process/lifecycle/process-config.ts';
import { selectorIn } from '../../services/process/lifecycle/process-index.ts';
import type { Reader } from '../../services/process/output/reader.ts';
import type { ProcessTable } from '../../services/process/table.ts';
import { showOutput } from './show-output.ts';
import { actionOf, TERMINAL_QUERY, type TerminalParameters } from './terminal-messages.ts';

/**
 * WebSocket `GET /terminal`: starts a shell or a command in a new terminal, or joins the terminal of a process. Any number of
 * clients may share one. Like a process of Start, it goes on without them.
 */
export function terminalExtension(processes: ProcessTable, guest: Guest): Extension {
  const viewers = new Viewers();
  const serve = async (opened: OpenedSocket) => {
    const { connection, call } = opened;
    const asked = TERMINAL_QUERY.read(opened.query, '');
    using feed = asked.process
      ? join(processes, asked.process, asked)
      : await start(processes, guest, asked, call);
    call.throwIfAborted();
    call.subject = { pid: feed.pid };
    call.response.once('close', () => feed[Symbol.dispose]());
    if (asked.takeover) viewers.dismiss(feed.pid);
    viewers.add(feed.pid, call);
    const process = processes.findRetained({ pid: feed.pid });
    await Promise.race([showOutput(feed, connection), act(opened, process)]);
  };
  return { webSockets: [{ url: '/terminal', path: /^\/terminal$/, protocol: 'envd.terminal', serve }] };
}

function start(
  processes: ProcessTable,
  guest: Guest,
  { cmd, cwd, user, tag, cols, rows }: TerminalParameters,
  call: CallScope,
): Promise<Reader> {
  const args = cmd === null ? ['-i', '-l'] : ['-l', '-c', cmd];
  const request = {
    config: { command: '/bin/bash', args, environment: {}, cwd },
    user: user === null ? callerOf(call, guest) : guest.user(user),
    throwIfAborted: () => call.throwIfAborted(),
    ...{ terminal: { cols, rows }, tag, stdin: true, startId: null },
  };
  requireExecutable(request.config);
  return processes.start(request, null);
}

/** Reads a process from an offset on, from now on, or by its screen. Throws `not_found`, and `failed_precondition` without a terminal. */
function join(processes: ProcessTable, name: string, { from, screen }: TerminalParameters): Reader {
  const process = processes.findRetained(selectorIn(name));
  const { kind, totals } = process.state;
  if (kind !== 'terminal')
    throw new EnvdError('failed_precondition', `process ${process.pid} has no terminal`);
  if (screen) return process.join(from === null ? null : { ...totals, pty: from });
  return process.output.read(process.pid, { ...totals, pty: from ?? totals.pty });
}

/** Does what the client asks for, until it leaves. What comes after the end of the process is dropped. */
function act(
  { connection: { stream }, call }: OpenedSocket,
  process: ManagedProcess | EndedProcess,
): Promise<void> {
  const apply = async (message: string | Buffer) => {
    const action = actionOf(message);
    if (!(process instanceof ManagedProcess) || process.isExiting) return;
    if ('cols' in action) process.resize(action);
    else
      await process.write('pty', action, call.signal).catch((error: unknown) => {
        if (!process.isExiting) throw error;
      });
  };
  const actions = new Writable({
    objectMode: true,
    highWaterMark: 1,
    write(message: string | Buffer, _encoding, done) {
      apply(message).then(() => done(), done);
    },
  });
  stream.pipe(actions);
  return finished(actions);
}

/** Who looks at which process, for a client that wants a terminal for itself. */
class Viewers {
  readonly #calls = new Map<number, Set<CallScope>>();

  add(pid: number, call: CallScope): void {
    const calls = this.#calls.get(pid) ?? new Set();
    this.#calls.set(pid, calls.add(call));
    call.response.once('close', () => {
      calls.delete(call);
      if (calls.size === 0 && this.#calls.get(pid) === calls) this.#calls.delete(pid);
    });
  }

  dismiss(pid: number): void {
    const reason = new EnvdError('aborted', 'another client has taken over the terminal');
    for (const call of this.#calls.get(pid) ?? []) call.abort(reason);
  }
}
