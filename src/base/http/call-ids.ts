/** The headers of a request. */
interface Named {
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
}

interface Answer {
  setHeader(name: string, value: string): unknown;
}

/** Other ids are ignored. */
const REQUEST_ID = /^[\w.:+/=@-]{1,128}$/;
/** The parts are version, trace, parent and flags. Source: W3C Trace Context, section 3.2. */
const TRACEPARENT = /^(?!ff)[\da-f]{2}-(?!0{32})([\da-f]{32})-(?!0{16})[\da-f]{16}-[\da-f]{2}$/;

/** Copies the valid ids of a request to its response. */
export function passOnIds({ headers }: Named, response: Answer): void {
  const { 'x-request-id': id, traceparent } = headers;
  if (typeof id === 'string' && REQUEST_ID.test(id)) response.setHeader('x-request-id', id);
  if (typeof traceparent === 'string' && TRACEPARENT.test(traceparent))
    response.setHeader('traceparent', traceparent);
}

/** Returns the valid ids of a request, for the log. */
export function idsOf({ headers }: Named): Record<string, string> {
  const { 'x-request-id': id, traceparent } = headers;
  const trace = typeof traceparent === 'string' ? TRACEPARENT.exec(traceparent)?.[1] : undefined;
  return {
    ...(typeof id === 'string' && REQUEST_ID.test(id) && { requestId: id }),
    ...(trace !== undefined && { traceId: trace }),
  };
}
