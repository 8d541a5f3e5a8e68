// What a resume costs a Node program that does the least for the calls that frames.ts makes: `GET /health`, `POST /init`,
// `POST /start`, a shell command whose output is the answer. `POST /collapse` prepares a pause as the daemon does, but for
// the huge pages: it collects garbage. `GET /pid`, `GET /census`: what
// frames.ts asks for. Runs in the guest, in place of the daemon.
import { spawn } from 'node:child_process';
import { createReadStream } from 'node:fs';
import { createServer } from 'node:http';

const PORT = 49983;
let settings = {};

async function bodyOf(stream) {
  let text = '';
  for await (const piece of stream.setEncoding('utf8')) text += piece;
  return text;
}

function start(command, response) {
  const child = spawn('/bin/sh', ['-c', command], { stdio: ['ignore', 'pipe', 'inherit'] });
  child.stdout.on('data', (output) => response.write(output));
  child.on('close', (code) => response.end(`\n${code}`));
}

async function serve(request, response) {
  const { method, url } = request;
  if (url === '/census') return void createReadStream('/run/census').pipe(response);
  if (url === '/pid') return void response.end(`${process.pid}`);
  if (method === 'GET') return void response.writeHead(204).end();
  const body = await bodyOf(request);
  if (url === '/start') return start(body, response);
  if (url === '/init') settings = JSON.parse(body);
  else globalThis.gc({ type: 'major', execution: 'sync', flavor: 'regular' });
  response.writeHead(204, { 'x-settings': Object.keys(settings).length }).end();
}

createServer(serve).listen(PORT, '0.0.0.0');
