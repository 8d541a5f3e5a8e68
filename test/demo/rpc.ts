import { type DescMessage, type Message, toJson } from '@bufbuild/protobuf';
import { ConnectError, type Interceptor } from '@connectrpc/connect';
import { codeToString } from '@connectrpc/connect/protocol-connect';
import { received, refused, sent } from './screen.ts';
import { brief, type Json, json } from './wording.ts';

/** Shows the messages of every call, and the error of one that fails. */
export const showRpc: Interceptor = (next) => async (request) => {
  const { input, output, name, parent } = request.method;
  const showRequest = (message: Message) =>
    sent(`POST /${parent.typeName}/${name}`, json(asJson(input, message)));
  const showResponse = (message: Message) => received(brief(asJson(output, message)));
  try {
    if (!request.stream) showRequest(request.message);
    const response = await next(
      request.stream ? { ...request, message: each(request.message, showRequest) } : request,
    );
    if (response.stream) return { ...response, message: each(response.message, showResponse) };
    showResponse(response.message);
    return response;
  } catch (error) {
    return showError(error);
  }
};

const asJson = (type: DescMessage, message: Message) => toJson(type, message) as Json;

async function* each<T>(messages: AsyncIterable<T>, show: (message: T) => void): AsyncGenerator<T> {
  try {
    for await (const message of messages) {
      show(message);
      yield message;
    }
  } catch (error) {
    showError(error);
  }
}

function showError(error: unknown): never {
  const { code, rawMessage } = ConnectError.from(error);
  refused(`${codeToString(code)}: ${rawMessage}`);
  throw error;
}
