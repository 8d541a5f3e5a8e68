import { received, refused, sent } from './screen.ts';

interface RestRequest {
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** Calls an operation like `GET /health`; shows request and response, with the named response headers. */
export type RestCall = (
  operation: string,
  request?: RestRequest,
  shownHeaders?: readonly string[],
) => Promise<string>;

export const restAt =
  (url: string): RestCall =>
  async (operation, request = {}, shownHeaders = []) => {
    const [method = '', path = ''] = operation.split(' ');
    const headers = Object.entries(request.headers ?? {});
    sent(operation, sentence(headers, request.body ?? ''));
    const response = await fetch(`${url}${path}`, { ...request, method });
    const body = await response.text();
    const show = response.ok ? received : refused;
    const named = shownHeaders.map((name) => [name, response.headers.get(name) ?? ''] as const);
    show(`${response.status} ${response.statusText}  ${sentence(named, body)}`.trimEnd());
    return body;
  };

/** The headers, then the body: JSON as it is, other text in quotes. */
function sentence(headers: readonly (readonly [string, string])[], body: string): string {
  const shownBody = body === '' || /^[{[]/.test(body) ? body : JSON.stringify(body);
  return [...headers.map(([name, value]) => `${name}: ${value}`), shownBody].filter(Boolean).join('  ');
}
