import { once } from 'node:events';
import { chownSync, createReadStream, createWriteStream, renameSync, rmSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { setTimeout as delay } from 'node:timers/promises';
import type { Qmp } from './qmp.ts';

const POLL_MS = 5;

/**
 * Stops a machine, and writes the state of its devices to `home/state`. Its memory is in a file already. If that fails, the machine goes
 * on.
 */
export async function save(qmp: Qmp, home: string, user: number): Promise<void> {
  await qmp.execute('stop');
  try {
    await writeState(qmp, home, user);
  } catch (error) {
    await qmp.execute('cont');
    throw error;
  }
}

/** qemu may start no program, so the state comes by a socket, which `user` can connect to. */
async function writeState(qmp: Qmp, home: string, user: number): Promise<void> {
  await ignoreSharedMemory(qmp);
  const path = join(home, 'saving');
  rmSync(path, { force: true });
  const server = createServer();
  await once(server.listen(path), 'listening');
  try {
    chownSync(path, user, user);
    const connected = once(server, 'connection');
    await qmp.execute('migrate', { uri: `unix:${path}` });
    const [socket] = (await connected) as [Socket];
    await pipeline(socket, createWriteStream(`${home}/state.new`, { mode: 0o600, flush: true }));
  } finally {
    // This program could not end otherwise.
    server.close();
  }
  await untilMoved(qmp);
  renameSync(`${home}/state.new`, `${home}/state`);
}

/** Lets a machine that was started with `-incoming defer` go on from `home/state`, which counts no more then. */
export async function load(qmp: Qmp, home: string): Promise<void> {
  await ignoreSharedMemory(qmp);
  const path = join(home, 'loading');
  rmSync(path, { force: true });
  await qmp.execute('migrate-incoming', { uri: `unix:${path}` });
  const socket = connect(path);
  await once(socket, 'connect');
  await pipeline(createReadStream(`${home}/state`), socket);
  await untilMoved(qmp);
  await qmp.execute('cont');
  rmSync(`${home}/state`);
}

async function ignoreSharedMemory(qmp: Qmp): Promise<void> {
  await qmp.execute('migrate-set-capabilities', {
    capabilities: [{ capability: 'x-ignore-shared', state: true }],
  });
}

async function untilMoved(qmp: Qmp): Promise<void> {
  for (;;) {
    const { status } = (await qmp.execute('query-migrate')) as { status?: string };
    if (status === 'completed') return;
    if (status === 'failed') throw new Error('the state of the machine could not be moved');
    await delay(POLL_MS);
  }
}
