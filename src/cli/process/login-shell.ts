import type { Connection } from '../connection/connection.ts';
import { KEEPALIVE_S } from '../connection/connection.ts';
import { FALLBACK_SHELL, SHELL_LOOKUP, shellIn } from './shell-lookup.ts';

/** No path is longer (PATH_MAX, limits.h). */
const MAX_BYTES = 4096;

/** Returns the shell of the user in the sandbox. Throws `Failure`. */
export async function loginShell(connection: Connection): Promise<string> {
  const process = { cmd: FALLBACK_SHELL, args: ['-c', SHELL_LOOKUP], envs: {} };
  const headers = { 'Keepalive-Ping-Interval': String(KEEPALIVE_S) };
  const pieces: Uint8Array[] = [];
  let length = 0;
  try {
    for await (const { event } of connection.processes.start({ process, stdin: false }, { headers })) {
      const told = event?.event;
      if (told?.case !== 'data' || told.value.output.case !== 'stdout') continue;
      pieces.push(told.value.output.value);
      length += told.value.output.value.length;
      if (length > MAX_BYTES) return FALLBACK_SHELL;
    }
  } catch (error) {
    throw await connection.failure(error);
  }
  return shellIn(Buffer.concat(pieces).toString());
}
