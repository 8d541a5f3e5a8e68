import { expect, test } from 'vitest';
import { connectTo, transcribe } from '../../support/clients/clients.ts';
import { startDaemon } from '../../support/programs/daemon.ts';

const LIMIT = 700;

/** `npm start` in a shell with that limit, as a person does. */
const NPM_START = [
  'sh',
  '-c',
  `ulimit -S -n ${LIMIT}; npm --silent start -- "$@" & trap "kill $!" TERM; wait; wait`,
  'sh',
] as const;

test('`npm start` gives processes the limit of descriptors of the shell that called npm', async () => {
  await using daemon = await startDaemon({ command: NPM_START });
  const { process } = connectTo(daemon.url);
  const script = 'ulimit -S -n; ulimit -H -n; echo "$LD_PRELOAD"';
  const { stdout } = await transcribe(process.start({ process: { cmd: 'sh', args: ['-c', script] } }));
  const [soft, hard, preloaded] = String(stdout).split('\n');
  expect([soft, preloaded]).toEqual([String(LIMIT), '']);
  expect(Number(hard)).toBeGreaterThan(LIMIT);
});
