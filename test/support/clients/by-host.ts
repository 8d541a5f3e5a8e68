import { once } from 'node:events';
import { type IncomingHttpHeaders, type IncomingMessage, type OutgoingHttpHeaders, request } from 'node:http';
import { text } from 'node:stream/consumers';

export interface HostAnswer {
  readonly status: number | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

/** A request to a port of this machine with headers that `fetch` does not send, such as Host and Cookie. */
export async function ask(
  port: number,
  path: string,
  headers: OutgoingHttpHeaders,
  method = 'GET',
): Promise<HostAnswer> {
  const outgoing = request({ host: '127.0.0.1', port, path, method, headers, agent: false }).end();
  const [response] = (await once(outgoing, 'response')) as [IncomingMessage];
  return { status: response.statusCode, headers: response.headers, text: await text(response) };
}

/** The cookie of a `Set-Cookie`, as a browser sends it. */
export function cookieOf({ headers }: HostAnswer): string {
  return headers['set-cookie']?.[0]?.split(';', 1)[0] ?? '';
}
