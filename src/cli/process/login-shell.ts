import type { Connection } from '../connection/connection.ts';
import { KEEPALIVE_S } from '../connection/connection.ts';

const FALLBACK = '/bin/sh';
/** Prints the shell of the user. One that refuses logins gives way to bash, or to the shell that every guest has. */
const SCRIPT = `entry=$(getent passwd "$(id -u)" || grep "^$(id -un):" /etc/passwd)
shell=\${entry##*:}
case $shell in */nologin | */false) shell= ;; esac
{ [ -f "$shell" ] && [ -x "$shell" ]; } || shell=$(command -v bash) || shell=${FALLBACK}
echo "$shell"`;

/** Returns the shell of the user in the sandbox. Throws `Failure`. */
export async function loginShell(connection: Connection): Promise<string> {
  const process = { cmd: FALLBACK, args: ['-c', SCRIPT], envs: {} };
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
  const told = Buffer.concat(pieces).toString().trim();
  return told.startsWith('/') && !told.includes('\n') ? told : FALLBACK;
}
