/**
 * Preloaded into a gateway: makes functions of Node throw during an exchange when the path of its request says so. The
 * gateway has no handler of its own at these places.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { ClientRequest, IncomingMessage, OutgoingMessage, Server, ServerResponse } from 'node:http';

type Method = (this: object, ...values: unknown[]) => unknown;

/** Runs code outside of any exchange. */
const outside = AsyncLocalStorage.snapshot();

const thrown = (place: string) => Object.assign(new Error(`thrown: ${place}`), { place });

/** Calls `before` ahead of each call of a method. */
function precede(
  prototype: object,
  name: string,
  before: (self: object, values: readonly unknown[]) => void,
): void {
  const method = Reflect.get(prototype, name) as Method;
  Reflect.set(prototype, name, function (this: object, ...values: unknown[]) {
    before(this, values);
    return method.apply(this, values);
  });
}

const at = (path: unknown, place: string) => typeof path === 'string' && path === `/throw/${place}`;
const pathOf = (message: object) =>
  message instanceof ClientRequest
    ? message.path
    : message instanceof ServerResponse
      ? message.req.url
      : message instanceof IncomingMessage
        ? message.url
        : undefined;

function throwAt(message: object, place: string): void {
  if (at(pathOf(message), place)) throw thrown(place);
}

precede(IncomingMessage.prototype, 'pipe', (self) => throwAt(self, 'pipe'));
precede(OutgoingMessage.prototype, 'addTrailers', (self) => throwAt(self, 'trailers'));
precede(ServerResponse.prototype, 'writeHead', (self) => throwAt(self, 'head'));
precede(ServerResponse.prototype, 'end', (self) => throwAt(self, 'end'));
precede(Server.prototype, 'emit', (_self, [event, request]) => {
  if (event === 'request' || event === 'upgrade') throwAt(request as object, `server-${event}`);
});
precede(ClientRequest.prototype, 'emit', (self, [event]) => {
  throwAt(self, `client-${String(event)}`);
  if (event !== 'response' && event !== 'upgrade') return;
  if (at(pathOf(self), 'timer')) setTimeout(() => throwAt(self, 'timer'), 1);
  if (at(pathOf(self), 'immediate')) setImmediate(() => throwAt(self, 'immediate'));
  if (at(pathOf(self), 'tick')) process.nextTick(() => throwAt(self, 'tick'));
  if (at(pathOf(self), 'rejection')) void Promise.reject(thrown('rejection'));
  if (at(pathOf(self), 'nothing')) void Promise.reject(undefined);
  if (at(pathOf(self), 'strange')) {
    throw Object.defineProperty(thrown('strange'), 'message', {
      get() {
        throw thrown('strange');
      },
    });
  }
  if (at(pathOf(self), 'nobody')) outside(() => setImmediate(() => throwAt(self, 'nobody')));
});
