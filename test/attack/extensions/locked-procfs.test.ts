import { spawn } from 'node:child_process';
import { join } from 'node:path';
import process from 'node:process';
import { Code, ConnectError } from '@connectrpc/connect';
import { expect, test } from 'vitest';
import { ListScope, Signal } from '../../../src/gen/process/process_pb.js';
import { connectTo } from '../../support/clients/clients.ts';
import { uploadRaw } from '../../support/clients/files-client.ts';
import { needs } from '../../support/machine/needs.ts';
import { childrenOf, runs } from '../../support/machine/proc.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { isWaiting, stuckCall } from '../../support/machine/stuck-call.ts';
import { startDaemon } from '../../support/programs/daemon.ts';
import { daemonCommand } from '../../support/programs/programs.ts';
import { startDetached } from '../../support/programs/workload.ts';
import { until } from '../../support/until.ts';

const byPid = (value: number) => ({ selector: { case: 'pid', value } as const });

/*
 * Everybody can keep /proc locked: he lists it into memory that never comes. As soon as somebody tries to make a name in it, all
 * who list it or look up a name that the kernel does not know wait. The daemon has a procfs of its own here, because the
 * machine would wait, too.
 */

test('whoever keeps /proc locked delays the listings of the guest, and nothing else', async () => {
  needs('root', 'fuse', 'cgroup v2');
  const inNamespace = ['setsid', 'unshare', '--pid', '--fork', '--mount-proc', '--kill-child'] as const;
  await using daemon = await startDaemon({
    command: [...inNamespace, ...daemonCommand()],
    // More than a disk of a busy machine needs.
    args: ['--file-timeout=4'],
    env: { UV_THREADPOOL_SIZE: '16' },
  });
  const [pid = 0] = childrenOf(daemon.pid);
  using _stop = { [Symbol.dispose]: () => process.kill(pid, 'SIGTERM') };
  const clients = connectTo(daemon.url);
  const { process: client, filesystem } = clients;
  const procfs = `/proc/${pid}/root/proc`;
  const group = { cmd: '/bin/sh', args: ['-c', 'sleep 1000 & read line'] };
  const leader = byPid(await startDetached(clients, { process: group }));
  const [leaderOutside = 0] = childrenOf(pid);
  const release = await stuckCall(
    `directory = os.open("${procfs}", os.O_RDONLY)
SYS_getdents64 = {'x86_64': 217, 'aarch64': 61}[os.uname().machine]`,
    'libc.syscall(SYS_getdents64, directory, ctypes.c_void_p(page), 65536)',
  );
  await using _release = { [Symbol.asyncDispose]: release };
  const writer = spawn('mkdir', [join(procfs, 'name')], { stdio: 'ignore' });
  await until('a writer waits', () => isWaiting(`/proc/${writer.pid}`));

  await client.closeStdin({ process: leader });
  await until('the leader of the group has ended', () => !childrenOf(pid).includes(leaderOutside));
  await client.sendSignal({ process: leader, signal: Signal.SIGTERM });
  await until('the rest of the group has ended', async () => (await client.list({})).processes.length === 0);
  const codeOf = (error: unknown) => Code[ConnectError.from(error).code];
  const listings = Array.from({ length: 20 }, () =>
    client.list({ scope: ListScope.GUEST, usage: true }).then(() => 'ok', codeOf),
  );
  const ports = await fetch(`${daemon.url}/ports/stream`);
  const [path, content] = [join(scratch(), 'file'), Buffer.alloc(300_000)];
  for (let round = 0; round < 5; round++) {
    expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
    expect((await uploadRaw(daemon, path, content)).status).toBe(200);
    expect((await filesystem.stat({ path })).entry?.size).toBe(300_000n);
  }
  expect(ports.status).toBe(200);
  await ports.body?.cancel();
  expect(new Set(await Promise.all(listings))).toEqual(new Set(['DeadlineExceeded']));
  await release();
  await until('the writer has ended', () => !runs(writer.pid ?? 0));
  expect((await client.list({ scope: ListScope.GUEST })).processes.length).toBeGreaterThan(0);
});
