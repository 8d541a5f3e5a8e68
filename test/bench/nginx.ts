import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { freePort } from '../support/servers/free-port.ts';

export interface Nginx extends AsyncDisposable {
  readonly port: number;
  /** Pid of its only worker. */
  readonly worker: number;
}

/** nginx as a server of the files in `root`, with sendfile, on loopback, without the system's configuration. */
export async function startNginx(root: string): Promise<Nginx> {
  const directory = mkdtempSync(join(tmpdir(), 'envd-nginx-'));
  const port = await freePort();
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
  writeFileSync(
    join(directory, 'nginx.conf'),
    `user root; worker_processes 1; daemon off; pid ${directory}/pid; error_log stderr;
    events {}
    http {
      access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000;
      ${temporary.map((name) => `${name}_temp_path ${directory}/${name};`).join(' ')}
      server { listen 127.0.0.1:${port}; root ${root}; }
    }`,
  );
  const args = ['-e', 'stderr', '-c', join(directory, 'nginx.conf')];
  const child = spawn('nginx', args, { stdio: ['ignore', 'ignore', 'inherit'] });
  const exited = once(child, 'exit');
  while (!(await accepts(port))) await delay(10);
  const worker = Number(readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8').trim());
  return {
    port,
    worker,
    async [Symbol.asyncDispose]() {
      child.kill('SIGTERM');
      await exited;
      rmSync(directory, { recursive: true });
    },
  };
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
