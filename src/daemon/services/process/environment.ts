import type { User } from '../../os/users.ts';

/**
 * The environment of a process: the daemon's PATH, the user's own variables, the platform's, the request's; the
 * last one wins, but PWD is always `cwd`: one that was handed on is of another process, or machine. Nothing else of
 * the daemon's environment reaches a process.
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
