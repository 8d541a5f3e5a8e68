import { expect, test } from 'vitest';
import { withoutClone3 } from '../../support/attackers/without-openat2.ts';
import { connectTo, transcribe } from '../../support/clients/clients.ts';
import { startDaemon } from '../../support/programs/daemon.ts';
import { daemonCommand } from '../../support/programs/programs.ts';

test('processes start where the default filter of a container engine hides clone3(2)', async () => {
  const command = [withoutClone3(), ...daemonCommand()] as const;
  await using daemon = await startDaemon({ command, args: ['--no-cgroups'], cgroupRoot: null });
  const { process } = connectTo(daemon.url);
  const run = await transcribe(
    process.start({ process: { cmd: '/bin/sh', args: ['-c', 'echo $0; exit 3'] } }),
  );
  expect(String(run.stdout)).toBe('/bin/sh\n');
  expect(run.end).toMatchObject({ exitCode: 3, exited: true });
});
