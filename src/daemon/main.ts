import process from 'node:process';
import { runAs } from '../base/program/main.ts';
import { configOrPrint } from '../base/program/run.ts';

// By default SIGUSR1 opens Node's inspector on a port that every user of the guest can connect to. The launchers disable
// that with --disable-sigusr1; this handler protects a daemon that was started without them.
process.on('SIGUSR1', () => {});
// By default SIGUSR2 ends the process. This handler protects a program that has just replaced another and does not listen yet.
process.on('SIGUSR2', () => {});

void runAs('envd', async () => {
  // This comes before the heap grows, so that the kernel places later mappings densely (docs/decisions/014-memory.md).
  const { reserveAddressSpace } = await import('./linux/system/self.ts');
  reserveAddressSpace();
  const { readConfig } = await import('./config/config.ts');
  const config = configOrPrint(readConfig());
  if (config === null) return;
  if (config.doctor) return (await import('./wiring/extensions.ts')).runDoctor(config);
  // The program is loaded only here, because --help and --version need none of it.
  const { runDaemon, tryUpgrade } = await import('./run.ts');
  if (config.tryUpgrade) await tryUpgrade();
  else await runDaemon(config);
});
