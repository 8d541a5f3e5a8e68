import type { Connection } from '../connection/connection.ts';
import { KEEPALIVE_S } from '../connection/connection.ts';
import { FALLBACK_SHELL, SHELL_LOOKUP, shellIn } from './shell-lookup.ts';

/** Returns the shell of the user in the sandbox. Throws `Failure`. */
export async function loginShell(connection: Connection): Promise<string> {
  const process = { cmd: FALLBACK_SHELL, args: ['-c', SHELL_LOOKUP], envs: {} };
  const headers = { 'Keepalive-Ping-Interval': String(KEEPALIVE_S) };
  const pieces: Uint8Array[] = [];
  try {
    for await (const { event } of connection.processes.start({ process, stdin: false }, { headers })) {
      const told = event?.event;
      if (told?.case === 'data' && told.value.output.case === 'stdout') pieces.push(told.value.output.value);
    }
  } catch (error) {
    throw await connection.failure(error);
  }
  return shellIn(Buffer.concat(pieces).toString());
}
