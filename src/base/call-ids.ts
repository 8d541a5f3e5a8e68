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
  const ids = withIds([], request);
  for (let at = 0; at + 1 < ids.length; at += 2) response.setHeader(ids[at] ?? '', ids[at + 1] ?? '');
}

/** `head` (names and values in turn) with the valid ids of a request. Setting headers one by one costs twice as much. */
export function withIds(head: readonly string[], { headers }: Named): readonly string[] {
  const { 'x-request-id': id, traceparent } = headers;
  if (id === undefined && traceparent === undefined) return head;
  const all = [...head];
  if (typeof id === 'string' && REQUEST_ID.test(id)) all.push('x-request-id', id);
  if (typeof traceparent === 'string' && TRACEPARENT.test(traceparent)) all.push('traceparent', traceparent);
  return all;
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
