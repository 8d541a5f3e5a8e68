import { createClient } from '@connectrpc/connect';
import { createGrpcWebTransport } from '@connectrpc/connect-node';
import { expect, onTestFinished, test } from 'vitest';
import { Process } from '../../../src/gen/process/process_pb.js';
import { byPid, connectTo, transcribe } from '../../support/clients/clients.ts';
import { memoryOf } from '../../support/machine/proc.ts';
import { startDaemon } from '../../support/programs/daemon.ts';
import { daemonCommand } from '../../support/programs/programs.ts';

/* Clients start many processes with long arguments, and keep their streams: what is kept of a command is bounded. */

const MIB = 1024 * 1024;
const COUNT = 96;
/** Together 1.9 MiB, almost all that a program takes. */
const ARGS = Array.from({ length: 15 }, (_, index) => String(index).padEnd(127 * 1024, 'x'));

test.each(['binary', 'json', 'gRPC-Web'] as const)(
  'processes with long arguments take little memory, in %s',
  async (codec) => {
    const command = daemonCommand(['--max-old-space-size=96']);
    await using daemon = await startDaemon({ command });
    const plain = connectTo(daemon.url, codec === 'json' ? 'json' : 'binary').process;
    const web = createGrpcWebTransport({ baseUrl: daemon.url, httpVersion: '1.1' });
    const clients = codec === 'gRPC-Web' ? createClient(Process, web) : plain;
    const leaving = new AbortController();
    onTestFinished(() => leaving.abort());
    const start = async (tag: string) => {
      const command = {
        cmd: 'sh',
        args: ['-c', 'exec sleep 1000', ...ARGS],
        envs: { LONG: 'y'.repeat(MIB / 16) },
      };
      const events = clients.start({ process: command, tag }, { signal: leaving.signal });
      await events[Symbol.asyncIterator]().next();
    };
    await start('first');
    const { now } = memoryOf(daemon.pid);
    for (let count = 1; count < COUNT; count++) await start(String(count));

    const { processes } = await plain.list({});
    expect(processes).toHaveLength(COUNT);
    for (const { config } of processes) {
      const { cmd, args = [], envs = {} } = config ?? {};
      expect(cmd).toBe('sh');
      expect(args.slice(0, 2)).toEqual(['-c', 'exec sleep 1000']);
      expect(JSON.stringify({ args, envs }).length).toBeLessThan(4096);
      expect(args.at(-1)).toBe(`… (14 more, ${14 * 127 * 1024} bytes)`);
    }
    // All their arguments are 180 MiB.
    expect(memoryOf(daemon.pid).now - now).toBeLessThan(100 * MIB);
    for (const { pid } of processes) await plain.sendSignal({ process: byPid(pid), signal: 9 });
    expect((await transcribe(plain.start({ process: { cmd: 'true' } }))).end?.exitCode).toBe(0);
  },
);

test('too many arguments are refused without a word about the file', async () => {
  await using daemon = await startDaemon();
  const { process } = connectTo(daemon.url);
  const args = Array.from({ length: 40 }, () => 'x'.repeat(127 * 1024));
  const refused = await transcribe(process.start({ process: { cmd: 'sh', args } })).catch((error) => error);
  expect(refused.rawMessage).toMatch(/^cannot start '.*sh': E2BIG: argument list too long$/);
});
