import { expect, test } from 'vitest';
import { connectTo, transcribe } from '../../support/clients/clients.ts';
import { startDaemon } from '../../support/programs/daemon.ts';
import { DAEMON_PROGRAM } from '../../support/programs/programs.ts';

/** Code that throws in the daemon when it gets a signal. */
const FAULTS = `
process.on('SIGWINCH', () => { throw new Error('a fault in a callback'); });
process.on('SIGCONT', () => void Promise.reject(new Error('a fault that nobody waits for')));
process.on('SIGPWR', () => void Promise.reject('a fault that is no error'));
`;

test('an uncaught error is logged with its stack, and the daemon continues', async () => {
  const fault = `data:text/javascript,${encodeURIComponent(FAULTS)}`;
  await using daemon = await startDaemon({ command: [process.execPath, '--import', fault, DAEMON_PROGRAM] });
  const started = Promise.withResolvers<void>();
  const running = transcribe(
    connectTo(daemon.url).process.start({
      process: { cmd: 'sh', args: ['-c', 'echo up; read line'] },
      tag: 'a',
    }),
    ({ case: kind }) => kind === 'data' && started.resolve(),
  );
  await started.promise;
  const told = () =>
    daemon.log.filter(({ msg }) => msg === 'unexpected error: the daemon continues, please report it');
  for (const [count, signal] of (['SIGWINCH', 'SIGCONT', 'SIGPWR'] as const).entries()) {
    process.kill(daemon.pid, signal);
    await expect.poll(() => told().length).toBe(count + 1);
  }
  expect(told()).toEqual([
    expect.objectContaining({
      level: 50,
      err: expect.objectContaining({ message: 'a fault in a callback' }),
    }),
    expect.objectContaining({
      level: 50,
      err: expect.objectContaining({ message: 'a fault that nobody waits for' }),
    }),
    expect.objectContaining({
      level: 50,
      err: expect.objectContaining({ message: expect.stringContaining('no error') }),
    }),
  ]);
  expect(JSON.stringify(told()[0])).toMatch(/"stack":"Error: a fault in a callback\\n +at /);
  const { process: client } = connectTo(daemon.url);
  await client.closeStdin({ process: { selector: { case: 'tag', value: 'a' } } });
  expect(await running).toMatchObject({ end: { exited: true } });
  expect(await daemon.stop()).toBe(0);
});

test('an uncaught error before the daemon listens ends it', async () => {
  const fault = `data:text/javascript,${encodeURIComponent('process.nextTick(() => { throw new Error("early"); })')}`;
  const start = startDaemon({ command: [process.execPath, '--import', fault, DAEMON_PROGRAM] });
  await expect(start.then((daemon) => daemon.stop())).rejects.toThrow('daemon exited with 1');
});
