import { connect, type Socket } from 'node:net';
import type { TestDaemon } from '../programs/daemon.ts';
import { until } from '../until.ts';

/** A part of a multipart body; its headers as they are sent. */
export interface Part {
  readonly disposition: string;
  readonly content: Buffer | string;
}

type Body = RequestInit['body'] | null;

export const BOUNDARY = '----boundary-of-the-test';
export const MULTIPART = { 'content-type': `multipart/form-data; boundary=${BOUNDARY}` };
export const RAW = { 'content-type': 'application/octet-stream' };

export function multipartBody(parts: readonly Part[]): Buffer<ArrayBuffer> {
  const pieces = parts.flatMap(({ disposition, content }) => [
    Buffer.from(`--${BOUNDARY}\r\nContent-Disposition: form-data; ${disposition}\r\n\r\n`),
    Buffer.from(content as string),
    Buffer.from('\r\n'),
  ]);
  return Buffer.concat([...pieces, Buffer.from(`--${BOUNDARY}--\r\n`)]);
}

export const filePart = (filename: string, content: Buffer | string): Part => ({
  disposition: `name="file"; filename="${filename}"`,
  content,
});

/** The address of /files with these query parameters. */
export function filesUrl(daemon: TestDaemon, query: Readonly<Record<string, string>>): string {
  return `${daemon.url}/files?${new URLSearchParams(query)}`;
}

export function post(
  daemon: TestDaemon,
  query: Readonly<Record<string, string>>,
  headers: Readonly<Record<string, string>>,
  body: Body,
): Promise<Response> {
  return fetch(filesUrl(daemon, query), {
    method: 'POST',
    headers,
    body: body ?? null,
    duplex: 'half',
  } as RequestInit);
}

export function uploadRaw(
  daemon: TestDaemon,
  path: string,
  body: Body,
  headers: Readonly<Record<string, string>> = {},
): Promise<Response> {
  return post(daemon, { path }, { ...RAW, ...headers }, body);
}

export function uploadParts(
  daemon: TestDaemon,
  parts: readonly Part[],
  query: Readonly<Record<string, string>> = {},
): Promise<Response> {
  return post(daemon, query, MULTIPART, multipartBody(parts));
}

/** A GET that decodes nothing and adds no header. */
export function get(
  daemon: TestDaemon,
  path: string,
  headers: Readonly<Record<string, string>> = {},
  method = 'GET',
): Promise<Response> {
  return fetch(filesUrl(daemon, { path }), {
    method,
    headers: { 'accept-encoding': 'identity', ...headers },
  });
}

/** Sends raw bytes; resolves when all are sent. */
export async function openRequest(daemon: TestDaemon, head: string, body: Buffer): Promise<Socket> {
  const socket = connect(daemon.port, '127.0.0.1');
  socket.on('error', () => {});
  await new Promise<void>((resolve) => socket.once('connect', () => resolve()));
  await new Promise<void>((resolve) =>
    socket.write(Buffer.concat([Buffer.from(head), body]), () => resolve()),
  );
  return socket;
}

/** The head of an upload request, for a raw socket. */
export function uploadHead(query: string, headers: Readonly<Record<string, string | number>>): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `POST /files?${query} HTTP/1.1\r\nhost: test\r\n${lines.join('')}\r\n`;
}

/** How many archives the daemon has dropped because their clients stalled. */
export function droppedArchives({ log }: TestDaemon): number {
  return log.filter(({ err }) => JSON.stringify(err)?.includes('archive was dropped')).length;
}

/** Waits until the daemon has logged `count` operations on /files, from this line of its log on. */
export async function operationsLogged(daemon: TestDaemon, count: number, from: number): Promise<void> {
  const isOne = ({ operation }: Record<string, unknown>) => String(operation).endsWith(' /files');
  const seen = () => daemon.log.slice(from).filter(isOne).length;
  await until(`${count} operations on /files are logged`, seen, (logged) => logged >= count);
}
