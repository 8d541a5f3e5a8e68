import process from 'node:process';
import { runAs } from '../base/main.ts';
import { configOrPrint } from '../base/run.ts';

// Node's own answer to this signal is an inspector on a port that every user of the guest may connect to. The launchers
// turn that off from the first moment on (--disable-sigusr1); this is for a daemon that is started without them.
process.on('SIGUSR1', () => {});

await runAs('envd', async () => {
  // First of all, before the heap grows: what is mapped from here on is packed.
  const { reserveAddressSpace } = await import('./os/self.ts');
  reserveAddressSpace();
  const { readConfig } = await import('./config.ts');
  const config = configOrPrint(readConfig());
  if (config === null) return;
  // All the rest is loaded for a daemon that is to run.
  const { run } = await import('./run.ts');
  await run(config);
});
