// What a resume costs a Node program that does the least for the calls that frames.ts makes: `GET /health`, `POST /init`,
// `POST /start`, a shell command whose output is the answer. `POST /collapse` prepares a pause as the daemon does, but for
// the huge pages: it collects garbage, ends V8's compilers, and rehearses those calls. `GET /pid`, `GET /census`: what
// frames.ts asks for. Runs in the guest, in place of the daemon.
import { spawn } from 'node:child_process';
import { createReadStream } from 'node:fs';
import { Agent, createServer, request } from 'node:http';
import { setFlagsFromString } from 'node:v8';

const PORT = 49983;
const ROUNDS = 30;
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

function call(agent, method, path, body) {
  return new Promise((resolve, reject) => {
    const sent = request({ port: PORT, host: '127.0.0.1', method, path, agent }, (answer) =>
      answer.on('end', resolve).resume(),
    );
    sent.on('error', reject).end(body);
  });
}

async function collapse() {
  for (const compiler of ['maglev', 'turbofan', 'sparkplug']) setFlagsFromString(`--no-${compiler}`);
  globalThis.gc({ type: 'major', execution: 'sync', flavor: 'last-resort' });
  for (let round = 0; round < ROUNDS; round++) {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    await call(agent, 'GET', '/health');
    await call(agent, 'POST', '/init', JSON.stringify({ accessToken: 'secret', timestamp: new Date() }));
    await call(agent, 'POST', '/start', 'true');
    agent.destroy();
  }
  globalThis.gc({ type: 'major', execution: 'sync', flavor: 'regular' });
}

async function serve(request, response) {
  const { method, url } = request;
  if (url === '/census') return void createReadStream('/run/census').pipe(response);
  if (url === '/pid') return void response.end(`${process.pid}`);
  if (method === 'GET') return void response.writeHead(204).end();
  const body = await bodyOf(request);
  if (url === '/start') return start(body, response);
  if (url === '/init') settings = JSON.parse(body);
  else await collapse();
  response.writeHead(204, { 'x-settings': Object.keys(settings).length }).end();
}

createServer(serve).listen(PORT, '0.0.0.0');
