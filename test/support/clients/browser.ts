import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import { onTestFinished } from 'vitest';
import { scratch } from '../machine/scratch.ts';

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  return Buffer.concat(await request.toArray());
}

/**
 * Runs `script`, an expression of a promise, in a page of another origin than the daemon's, in a fresh headless Chromium of this
 * test. Resolves with what the promise does. The page calls an action by a POST to its path, such as `/change`.
 */
export async function runInBrowser(
  script: string,
  actions: Readonly<Record<string, () => void>> = {},
): Promise<unknown> {
  const tell = `(result) => fetch('/', { method: 'POST', body: JSON.stringify(result) })`;
  const told = `${script}.catch((error) => ({ error: String(error) })).then(${tell})`;
  const page = `<!doctype html><title>a page</title><script>${told}</script>`;
  const result = Promise.withResolvers<unknown>();
  const server = createServer((request, response) => {
    actions[request.url ?? '']?.();
    if (request.method === 'POST' && request.url === '/')
      bodyOf(request).then((body) => result.resolve(JSON.parse(String(body))), result.reject);
    response.setHeader('content-type', 'text/html; charset=utf-8').end(page);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  const flags = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'];
  const quiet = ['--disable-background-networking', '--disable-component-update', '--disable-sync'];
  const own = [`--user-data-dir=${scratch()}`, '--remote-debugging-port=0', `http://127.0.0.1:${port}/`];
  const browser = spawn('chromium', [...flags, ...quiet, ...own], { stdio: 'ignore' });
  const exited = once(browser, 'exit');
  onTestFinished(async () => {
    server.close();
    server.closeAllConnections();
    browser.kill('SIGTERM');
    await exited;
  });
  return Promise.race([
    result.promise,
    exited.then(([code]) => Promise.reject(new Error(`browser: ${code}`))),
  ]);
}
