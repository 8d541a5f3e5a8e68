import process from 'node:process';
import { runAs } from '../base/program/main.ts';
import { configOrPrint } from '../base/program/run.ts';

// By default SIGUSR1 opens Node's inspector on a port that every user of the guest can connect to. The launchers disable
// that with --disable-sigusr1; this handler is for a daemon started without them.
process.on('SIGUSR1', () => {});
// Until the daemon listens: by default it would end a program that has just replaced another.
process.on('SIGUSR2', () => {});

void runAs('envd', async () => {
  // First, before the heap grows: later mappings are placed densely (docs/decisions/014-memory.md).
  const { reserveAddressSpace } = await import('./linux/system/self.ts');
  reserveAddressSpace();
  const { readConfig } = await import('./config/config.ts');
  const config = configOrPrint(readConfig());
  if (config === null) return;
  if (config.doctor) return (await import('./doctor.ts')).doctor(config);
  // Loaded only now: --help and --version need none of it.
  const { runDaemon, tryUpgrade } = await import('./run.ts');
  if (config.tryUpgrade) await tryUpgrade();
  else await runDaemon(config);
});
