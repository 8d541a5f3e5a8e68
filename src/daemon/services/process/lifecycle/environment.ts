import type { User } from '../../../linux/system/users.ts';

/** What programs in a terminal need to know: that it takes colors, and characters in UTF-8. */
export const IN_TERMINAL: Readonly<Record<string, string>> = { TERM: 'xterm-256color', LANG: 'C.UTF-8' };

/**
 * The environment of a process: the daemon's PATH, the user's variables (HOME, USER, LOGNAME), the global variables,
 * the request's variables; later ones override earlier ones. PWD is always `cwd`, because an inherited PWD is that of
 * another process. No other variable of the daemon is passed on.
 */
export function buildEnvironment(
  daemonPath: string,
  user: User,
  platform: Readonly<Record<string, string>>,
  requested: Readonly<Record<string, string>>,
  cwd: string,
): Record<string, string> {
  return {
    PATH: daemonPath,
    HOME: user.home,
    USER: user.name,
    LOGNAME: user.name,
    ...platform,
    ...requested,
    PWD: cwd,
  };
}
