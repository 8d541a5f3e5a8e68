import { fileURLToPath } from 'node:url';

const file = (path: string) => fileURLToPath(new URL(`../../../${path}`, import.meta.url));

export const DAEMON_PROGRAM = file('src/daemon/main.ts');
const GATEWAY_PROGRAM = file('src/gateway/main.ts');
const ENVCTL_PROGRAM = file('src/cli/main.ts');

/** Where `npm test` has built the programs. Without it tests start them from the sources, so that one file can run after a change. */
const built = process.env.ENVD_TEST_IMAGE;

/** Returns the built directory of the daemon that is tested, or null when that is started from the sources. */
export function builtImage(): string | null {
  return built ? file(`${built}/dist`) : null;
}

/** Starts the daemon that is tested. Flags of Node are for that of the sources only: an image has its own. */
export function daemonCommand(flags: readonly string[] = []): readonly [string, ...string[]] {
  if (built && flags.length === 0) return [file(`${built}/dist/bin/envd`)];
  return [process.execPath, '--expose-gc', ...flags, DAEMON_PROGRAM];
}

/** Starts the gateway that is tested, likewise. */
export function gatewayCommand(flags: readonly string[] = []): readonly [string, ...string[]] {
  if (built && flags.length === 0) return [file(`${built}/dist-gateway/bin/envd-gateway`)];
  return [process.execPath, ...flags, GATEWAY_PROGRAM];
}

/** Starts the command line that is tested, likewise. */
export function envctlCommand(): readonly [string, string] {
  return [process.execPath, built ? file(`${built}/dist-envctl/lib/envctl.cjs`) : ENVCTL_PROGRAM];
}
