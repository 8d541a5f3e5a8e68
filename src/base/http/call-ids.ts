/** The headers of a request. */
interface Named {
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
}

interface Answer {
  setHeader(name: string, value: string): unknown;
}

/** The ids that are accepted; others are ignored. */
const REQUEST_ID = /^[\w.:+/=@-]{1,128}$/;
/** Source: W3C Trace Context, section 3.2: version, trace, parent, flags. */
const TRACEPARENT = /^(?!ff)[\da-f]{2}-(?!0{32})([\da-f]{32})-(?!0{16})[\da-f]{16}-[\da-f]{2}$/;

/** Copies the valid ids of a request to its response. */
export function passOnIds(request: Named, response: Answer): void {
  for (const [name, value] of idHeaders(request)) response.setHeader(name, value);
}

/** The valid ids of a request, as headers of its response. */
function idHeaders({ headers }: Named): readonly (readonly [name: string, value: string])[] {
  const { 'x-request-id': id, traceparent } = headers;
  const ids: [name: string, value: string][] = [];
  if (typeof id === 'string' && REQUEST_ID.test(id)) ids.push(['x-request-id', id]);
  if (typeof traceparent === 'string' && TRACEPARENT.test(traceparent))
    ids.push(['traceparent', traceparent]);
  return ids;
}

/** The valid ids of a request, for the log. */
export function idsOf({ headers }: Named): Record<string, string> {
  const { 'x-request-id': id, traceparent } = headers;
  const trace = typeof traceparent === 'string' ? TRACEPARENT.exec(traceparent)?.[1] : undefined;
  return {
    ...(typeof id === 'string' && REQUEST_ID.test(id) && { requestId: id }),
    ...(trace !== undefined && { traceId: trace }),
  };
}
