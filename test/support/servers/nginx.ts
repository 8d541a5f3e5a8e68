import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { needs } from '../machine/needs.ts';
import { until } from '../until.ts';
import { freePort } from './free-port.ts';

const CONFIGURATION = fileURLToPath(new URL('../../../systemd/gateway/nginx.conf', import.meta.url));
/** The nginx that is tested, for example that of another Debian. */
const PROGRAM = process.env.ENVD_NGINX ?? 'nginx';
const TEMPORARY = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];

export interface Nginx extends AsyncDisposable {
  readonly port: number;
  /** Pid of its only worker. */
  readonly worker: number;
}

export interface NginxOptions {
  /** The port of another gateway that it may use instead. */
  readonly otherGateway?: number;
  /** Listens for HTTP/2 without TLS at a port, too. */
  readonly http2?: number;
  /** Listens for TLS at a port, too. */
  readonly tls?: { readonly port: number; readonly certificate: string; readonly key: string };
}

/** The real nginx (Debian: nginx-light) with the project's configuration, in front of a gateway. */
export async function startNginx(gatewayPort: number, options: NginxOptions = {}): Promise<Nginx> {
  needs('nginx');
  const directory = mkdtempSync(join(tmpdir(), 'envd-nginx-'));
  const port = await freePort();
  const { otherGateway = gatewayPort, tls, http2 } = options;
  const gateways = [...new Set([gatewayPort, otherGateway])].map((each) => `server 127.0.0.1:${each};`);
  const server = withTls(readFileSync(CONFIGURATION, 'utf8'), tls)
    .replace('server 127.0.0.1:49980;', gateways.join(' '))
    .replace('listen 8080;', `listen 127.0.0.1:${port}; ${http2 ? `listen 127.0.0.1:${http2} http2;` : ''}`);
  const paths = TEMPORARY.map((name) => `${name}_temp_path ${directory}/${name};`).join(' ');
  const main = `user root; worker_processes 1; daemon off; pid ${directory}/pid; error_log ${directory}/error.log;
    events { worker_connections 1024; } http { access_log off; ${paths} ${server} }`;
  writeFileSync(join(directory, 'nginx.conf'), main);
  const args = ['-e', join(directory, 'error.log'), '-c', join(directory, 'nginx.conf')];
  const child = spawn(PROGRAM, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  const exited = once(child, 'exit');
  await until('nginx listens', () => fetch(`http://127.0.0.1:${port}/gateway/health`).catch(() => null));
  const [worker] = readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8').split(' ');
  return {
    port,
    worker: Number(worker),
    async [Symbol.asyncDispose]() {
      child.kill('SIGTERM');
      await exited;
      rmSync(directory, { recursive: true });
    },
  };
}

/** Removes the comment signs in front of what is for TLS. */
function withTls(configuration: string, tls: NginxOptions['tls']): string {
  if (!tls) return configuration;
  return configuration
    .replace('# listen 443', `listen 127.0.0.1:${tls.port}`)
    .replace('# ssl_certificate /etc/nginx/sandboxes.pem', `ssl_certificate ${tls.certificate}`)
    .replace('# ssl_certificate_key /etc/nginx/sandboxes.key', `ssl_certificate_key ${tls.key}`);
}
