import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createClient } from '@redis/client';
import { needs } from '../machine/needs.ts';
import { until } from '../until.ts';
import { freePort } from './free-port.ts';

/** The real server of the distribution (Debian: redis-server), on loopback and without the system's configuration. */
export interface RedisServer extends AsyncDisposable {
  readonly port: number;
  readonly url: string;
  /** Ends the server and keeps its data on disk. */
  stop(signal?: NodeJS.Signals): Promise<void>;
  start(): Promise<void>;
  signal(signal: NodeJS.Signals): void;
}

/** @param more flags of redis-server */
export async function startRedis(...more: readonly string[]): Promise<RedisServer> {
  needs('redis-server');
  const directory = mkdtempSync(join(tmpdir(), 'envd-redis-'));
  const port = await freePort();
  // Otherwise a replica waits for others for 5 s.
  const data = ['--dir', directory, '--appendonly', 'yes', '--repl-diskless-sync-delay', '0'];
  return start(directory, port, ['--bind', '127.0.0.1', '--port', `${port}`, ...data, ...more]);
}

/**
 * A Sentinel that finds its master dead when it has not answered for two seconds, as a busy machine may. The server has that
 * mode, too. After `failoverMs`, a replica that follows another address is told to follow the master, and its clients are closed.
 */
export async function startSentinel(
  name: string,
  master: number,
  quorum: number,
  failoverMs = 3000,
): Promise<RedisServer> {
  needs('redis-server');
  const directory = mkdtempSync(join(tmpdir(), 'envd-sentinel-'));
  const port = await freePort();
  const file = join(directory, 'sentinel.conf');
  const lines = [
    ...[`bind 127.0.0.1`, `port ${port}`, `dir ${directory}`, 'sentinel resolve-hostnames no'],
    `sentinel monitor ${name} 127.0.0.1 ${master} ${quorum}`,
    ...[`sentinel down-after-milliseconds ${name} 2000`, `sentinel failover-timeout ${name} ${failoverMs}`],
  ];
  writeFileSync(file, `${lines.join('\n')}\n`);
  const sentinel = await start(directory, port, [file, '--sentinel']);
  // Otherwise they look for each other every 2 s, and for replicas every 10 s. They ask replicas of a dead master each second,
  // and make none the master that has not answered for five periods of pings.

  const client = createClient({ url: sentinel.url });
  await client.connect();
  await client.sendCommand([
    'SENTINEL',
    'DEBUG',
    'INFO-PERIOD',
    '200',
    'PUBLISH-PERIOD',
    '200',
    'PING-PERIOD',
    '400',
  ]);
  client.destroy();
  return sentinel;
}

async function start(directory: string, port: number, args: readonly string[]): Promise<RedisServer> {
  let child: ReturnType<typeof spawn> | null = null;
  const server: RedisServer = {
    port,
    url: `redis://127.0.0.1:${port}`,
    async start() {
      child = spawn('redis-server', args, { stdio: 'ignore' });
      await until('the server of Redis listens', () => accepts(port));
    },
    signal(signal) {
      child?.kill(signal);
    },
    async stop(signal = 'SIGTERM') {
      if (!child) return;
      // It may have been stopped.
      child.kill('SIGCONT');
      const exited = once(child, 'exit');
      child.kill(signal);
      await exited;
      child = null;
    },
    async [Symbol.asyncDispose]() {
      // A replica that has just followed writes its first file of appended commands, and refuses SIGTERM meanwhile.
      await server.stop('SIGKILL');
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
