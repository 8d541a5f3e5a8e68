import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { needs } from '../machine/needs.ts';
import { API_KEY } from '../programs/gateway.ts';
import { until } from '../until.ts';
import { freePort } from './free-port.ts';

const CONFIGURATION = fileURLToPath(new URL('../../../systemd/gateway/nginx.conf', import.meta.url));
const MODULES = '/usr/lib/nginx/modules';
const LUA = `${MODULES}/ngx_http_lua_module.so`;
const TEMPORARY = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];

export interface Nginx extends AsyncDisposable {
  readonly port: number;
  /** Pid of its only worker. */
  readonly worker: number;
}

export interface NginxOptions {
  readonly readTimeout?: string;
  /** The port of another gateway that is asked, too. */
  readonly otherGateway?: number;
  /** Keeps connections to sandboxes, and answers in memory, by its Lua module. */
  readonly keeps?: boolean;
  /** Listens for HTTP/2 without TLS at a port, too. */
  readonly http2?: number;
  /** Listens for TLS at a port, too. */
  readonly tls?: { readonly port: number; readonly certificate: string; readonly key: string };
}

/** The real nginx (Debian: nginx-light) with the project's configuration, in front of a gateway. */
export async function startNginx(gatewayPort: number, options: NginxOptions = {}): Promise<Nginx> {
  needs('nginx');
  if (options.keeps) needs(LUA);
  const directory = mkdtempSync(join(tmpdir(), 'envd-nginx-'));
  const port = await freePort();
  const { readTimeout = '120s', keeps = false, otherGateway = gatewayPort, tls, http2 } = options;
  const gateways = [...new Set([gatewayPort, otherGateway])].map((each) => `server 127.0.0.1:${each};`);
  const modules = keeps ? `load_module ${MODULES}/ndk_http_module.so; load_module ${LUA};` : '';
  const server = withLua(withTls(readFileSync(CONFIGURATION, 'utf8'), tls), keeps)
    .replace('server 127.0.0.1:49980;', gateways.join(' '))
    .replace('listen 8080;', `listen 127.0.0.1:${port}; ${http2 ? `listen 127.0.0.1:${http2} http2;` : ''}`)
    .replace('"KEY"', `"${API_KEY}"`)
    .replace('/run/envd-gateway-routes', `${directory}/routes`)
    .replace('proxy_read_timeout 120s', `proxy_read_timeout ${readTimeout}`);
  const paths = TEMPORARY.map((name) => `${name}_temp_path ${directory}/${name};`).join(' ');
  const main = `${modules} user root; worker_processes 1; daemon off; pid ${directory}/pid; error_log ${directory}/error.log;
    events { worker_connections 1024; } http { access_log off; ${paths} ${server} }`;
  writeFileSync(join(directory, 'nginx.conf'), main);
  const args = ['-e', join(directory, 'error.log'), '-c', join(directory, 'nginx.conf')];
  const child = spawn('nginx', args, { stdio: ['ignore', 'ignore', 'inherit'] });
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

/** As the configuration tells how. */
function withLua(configuration: string, wanted: boolean): string {
  if (!wanted) return configuration;
  const lines = configuration.split('\n').filter((line) => !line.endsWith('# without lua'));
  return lines
    .map((line) => line.replace(/^#lua /, ''))
    .join('\n')
    .replace('/etc/nginx/?.lua', `${dirname(CONFIGURATION)}/?.lua`);
}
