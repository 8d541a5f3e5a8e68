import type { User } from '../../../linux/system/users.ts';

/** These variables tell programs in a terminal that it shows colors, and characters in UTF-8. */
export const IN_TERMINAL: Readonly<Record<string, string>> = { TERM: 'xterm-256color', LANG: 'C.UTF-8' };

/**
 * Builds the environment of a process from the daemon's PATH, the user's variables (HOME, USER, LOGNAME), the global
 * variables, and the request's variables. Later ones override earlier ones. PWD is always `cwd`, because an inherited
 * PWD is that of another process. No other variable of the daemon is passed on.
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
