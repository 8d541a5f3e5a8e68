import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from './free-port.ts';
import { API_KEY } from './gateway.ts';
import { needs } from './needs.ts';
import { until } from './until.ts';

const CONFIGURATION = new URL('../../systemd/gateway/nginx.conf', import.meta.url);
const TEMPORARY = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];

export interface Nginx extends AsyncDisposable {
  readonly port: number;
}

export interface NginxOptions {
  readonly readTimeout?: string;
  /** Listens for TLS at a port, too. */
  readonly tls?: { readonly port: number; readonly certificate: string; readonly key: string };
}

/** The real nginx (Debian: nginx-light) with the project's configuration, in front of a gateway. */
export async function startNginx(gatewayPort: number, options: NginxOptions = {}): Promise<Nginx> {
  needs('nginx');
  const directory = mkdtempSync(join(tmpdir(), 'envd-nginx-'));
  const port = await freePort();
  const { readTimeout = '120s', tls } = options;
  const server = withTls(readFileSync(CONFIGURATION, 'utf8'), tls)
    .replace('127.0.0.1:49980', `127.0.0.1:${gatewayPort}`)
    .replace('listen 8080', `listen 127.0.0.1:${port}`)
    .replace('"KEY"', `"${API_KEY}"`)
    .replace('/run/envd-gateway-routes', `${directory}/routes`)
    .replace('proxy_read_timeout 120s', `proxy_read_timeout ${readTimeout}`);
  const paths = TEMPORARY.map((name) => `${name}_temp_path ${directory}/${name};`).join(' ');
  const main = `user root; worker_processes 1; daemon off; pid ${directory}/pid; error_log ${directory}/error.log;
    events { worker_connections 1024; } http { access_log off; ${paths} ${server} }`;
  writeFileSync(join(directory, 'nginx.conf'), main);
  const args = ['-e', join(directory, 'error.log'), '-c', join(directory, 'nginx.conf')];
  const child = spawn('nginx', args, { stdio: ['ignore', 'ignore', 'inherit'] });
  const exited = once(child, 'exit');
  await until('nginx listens', () => fetch(`http://127.0.0.1:${port}/gateway/health`).catch(() => null));
  return {
    port,
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
