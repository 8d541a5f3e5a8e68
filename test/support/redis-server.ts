import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from './free-port.ts';
import { needs } from './needs.ts';
import { until } from './until.ts';

/** The real server of the distribution (Debian: redis-server), on loopback and without the system's configuration. */
export interface RedisServer extends AsyncDisposable {
  readonly url: string;
  /** Ends the server and keeps its data on disk. */
  stop(): Promise<void>;
  start(): Promise<void>;
  signal(signal: NodeJS.Signals): void;
}

export async function startRedis(): Promise<RedisServer> {
  needs('redis-server');
  const directory = mkdtempSync(join(tmpdir(), 'envd-redis-'));
  const port = await freePort();
  let child: ReturnType<typeof spawn> | null = null;
  const server: RedisServer = {
    url: `redis://127.0.0.1:${port}`,
    async start() {
      const args = ['--bind', '127.0.0.1', '--port', `${port}`, '--dir', directory, '--appendonly', 'yes'];
      child = spawn('redis-server', args, { stdio: 'ignore' });
      await until('the server of Redis listens', () => accepts(port));
    },
    signal(signal) {
      child?.kill(signal);
    },
    async stop() {
      if (!child) return;
      // It may have been stopped.
      child.kill('SIGCONT');
      const exited = once(child, 'exit');
      child.kill('SIGTERM');
      await exited;
      child = null;
    },
    async [Symbol.asyncDispose]() {
      await server.stop();
      rmSync(directory, { recursive: true, force: true });
    },
  };
  await server.start();
  return server;
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}
