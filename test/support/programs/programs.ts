import { fileURLToPath } from 'node:url';

const file = (path: string) => fileURLToPath(new URL(`../../../${path}`, import.meta.url));

export const DAEMON_PROGRAM = file('src/daemon/main.ts');
const GATEWAY_PROGRAM = file('src/gateway/main.ts');

/** Whether tests start the built programs: `npm run test:image`. */
const ofImage = process.env.ENVD_TEST_IMAGE !== undefined;

/** Starts the daemon that is tested. Flags of Node are for that of the sources only: an image has its own. */
export function daemonCommand(flags: readonly string[] = []): readonly [string, ...string[]] {
  if (ofImage && flags.length === 0) return [file('dist/bin/envd')];
  return [process.execPath, '--expose-gc', ...flags, DAEMON_PROGRAM];
}

/** Starts the gateway that is tested, likewise. */
export function gatewayCommand(flags: readonly string[] = []): readonly [string, ...string[]] {
  if (ofImage && flags.length === 0) return [file('dist-gateway/bin/envd-gateway')];
  return [process.execPath, ...flags, GATEWAY_PROGRAM];
}
