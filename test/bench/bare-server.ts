/**
 * The yardstick of `floor.ts`: a `node:http` server that does the least for an answer. `GET`: 204 without a body;
 * `POST /list`: parses JSON, answers a list as JSON; `POST /stat`: parses JSON, calls `fs.stat`, answers JSON.
 */
import { type Stats, stat } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** The answer to List: what the daemon answers. */
const list: unknown = JSON.parse(process.argv[2] ?? '{}');

function answer(response: ServerResponse, value: unknown): void {
  const body = JSON.stringify(value);
  const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
  response.writeHead(200, headers);
  response.end(body);
}

function describe(path: string, { size, mode, uid, gid, mtime }: Stats) {
  const owner = { owner: String(uid), group: String(gid) };
  return { entry: { path, size: String(size), mode, ...owner, modifiedTime: mtime.toISOString() } };
}

function serve(request: IncomingMessage, response: ServerResponse, text: string): void {
  const { path } = JSON.parse(text);
  if (request.url === '/list') {
    answer(response, list);
    return;
  }
  stat(path, (error, stats) => {
    if (error) response.writeHead(404).end();
    else answer(response, describe(path, stats));
  });
}

const server = createServer((request, response) => {
  if (request.method === 'GET') {
    response.writeHead(204).end();
    return;
  }
  let text = '';
  request.setEncoding('utf8').on('data', (piece: string) => {
    text += piece;
  });
  request.on('end', () => serve(request, response, text));
});
server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port));
process.on('disconnect', () => process.exit());
