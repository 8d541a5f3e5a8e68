import type { IncomingMessage } from 'node:http';
import type { DescMessage, MessageShape } from '@bufbuild/protobuf';
import type { ConnectRouter, HandlerContext } from '@connectrpc/connect';
import type { CallScope } from '../../../src/daemon/http/admission/call-scope.ts';
import { toConnectError } from '../../../src/daemon/http/admission/errors.ts';
import type { UnaryRpc } from '../../../src/daemon/http/protocol/connect-unary.ts';

/** Adds RPCs to a router of connect-node, which encodes their whole responses itself. */
export function addPlainRpcs(router: ConnectRouter, rpcs: readonly UnaryRpc[]): void {
  for (const rpc of rpcs)
    router.rpc(rpc.method, (message, context) => handle(rpc, message, context), {
      jsonOptions: { ignoreUnknownFields: false },
    });
}

async function handle(rpc: UnaryRpc, message: MessageShape<DescMessage>, context: HandlerContext) {
  try {
    const response = rpc.handle(message, callOf(context));
    if (!(Symbol.asyncIterator in response)) return await response;
    const whole: Record<string, unknown[]> = {};
    for await (const slice of response as AsyncIterable<Readonly<Record<string, unknown[]>>>) {
      context.signal.throwIfAborted();
      for (const [name, items] of Object.entries(slice))
        if (Array.isArray(items)) whole[name] = [...(whole[name] ?? []), ...items];
    }
    return whole;
  } catch (error) {
    throw toConnectError(error);
  }
}

/** As much of a call as handlers use. */
function callOf({ requestHeader, signal }: HandlerContext): CallScope {
  const request = { headers: Object.fromEntries(requestHeader) } as Partial<IncomingMessage>;
  return { request, signal, subject: null, holdMore: () => {} } as unknown as CallScope;
}
