import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { gatewayCommand } from './programs.ts';

interface Alone {
  readonly child: ChildProcess;
  /** The exit code, and what it complains of. */
  readonly ended: Promise<{ readonly code: number | null; readonly complaint: string }>;
}

/** Starts a gateway that is not expected to become ready. */
export function startedAlone(...args: readonly string[]): Alone {
  const [program, ...before] = gatewayCommand();
  const command = [...before, '--host=127.0.0.1', '--port=0', '--api-key=k', ...args];
  const child = spawn(program, command, { stdio: ['ignore', 'ignore', 'pipe'] });
  const end = async () => {
    const [complaint, [code]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
    return { code, complaint };
  };
  return { child, ended: end() };
}
