/** The shell of last resort, which every guest has. */
export const FALLBACK_SHELL = '/bin/sh';
/** A script of it that prints the shell of its user. One that refuses logins gives way to bash, or to the fallback. */
export const SHELL_LOOKUP = `entry=$(getent passwd "$(id -u)" || grep "^$(id -un):" /etc/passwd)
shell=\${entry##*:}
case $shell in */nologin | */false) shell= ;; esac
{ [ -f "$shell" ] && [ -x "$shell" ]; } || shell=$(command -v bash) || shell=${FALLBACK_SHELL}
echo "$shell"`;

/** The shell in what the script has printed. */
export function shellIn(output: string): string {
  const told = output.trim();
  return told.startsWith('/') && !told.includes('\n') ? told : FALLBACK_SHELL;
}
