import process from 'node:process';
import { EnvdError, messageOf } from '../base/errors.ts';
import { nameProcess } from '../base/process-name.ts';

// Node's own answer to this signal is an inspector on a port that every user of the guest may connect to. The launchers
// turn that off from the first moment on (--disable-sigusr1); this is for a daemon that is started without them.
process.on('SIGUSR1', () => {});

try {
  // First of all, before the heap grows: what is mapped from here on is packed.
  const { reserveAddressSpace } = await import('./os/address-space.ts');
  reserveAddressSpace();
  nameProcess('envd');
  const { run } = await import('./run.ts');
  await run();
} catch (error) {
  process.stderr.write(`envd: ${messageOf(error)}\n`);
  process.exitCode = isBadUsage(error) ? 2 : 1;
}

/** A value that was understood and cannot be used, like an address that is not this machine's. */
function isBadUsage(error: unknown): boolean {
  return error instanceof EnvdError && ['invalid_argument', 'failed_precondition'].includes(error.kind);
}
