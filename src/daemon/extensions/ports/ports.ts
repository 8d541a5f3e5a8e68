import type { FastifyInstance } from 'fastify';
import type { CallScope } from '../../http/admission/call-scope.ts';
import { ignoreBody } from '../../http/admission/requests.ts';
import type { Extension } from '../../http/extension.ts';
import type { StreamPlaces } from '../../http/protocol/stream-places.ts';
import { LineStream } from '../../http/rest/line-stream.ts';
import type { ListeningPort, ListeningPorts, PortWatch } from './port-watch.ts';
import { portNamed, WAIT_QUERY } from './ports-queries.ts';
import { tunnelRoute } from './tunnel.ts';

const PATH = '/ports/:port/wait';

/**
 * `GET /ports/stream` tells which ports are listened at and which are no more, `POST /ports/{port}/wait` answers when one is, and
 * `GET /ports/{port}/tunnel` is a WebSocket that carries the bytes of a connection to one. `ownPort` is the daemon's.
 */
export function portsExtension(watch: PortWatch, ownPort: number, places: StreamPlaces): Extension {
  return {
    addRoutes(app) {
      streamRoute(app, watch, places);
      waitRoute(app, watch, places);
    },
    webSockets: [tunnelRoute(ownPort)],
  };
}

function streamRoute(app: FastifyInstance, watch: PortWatch, places: StreamPlaces): void {
  app.get('/ports/stream', async (request, reply) => {
    let told = await watch.read();
    const stream = LineStream.begin(request, reply, places);
    if (stream === null) return reply;
    stream.send(changes(new Map(), told));
    const leave = watch.follow((ports) => {
      // A client that does not read is told less often, and never twice.
      if (!stream.isIdle) return;
      stream.send(changes(told, ports));
      told = ports;
    });
    stream.onClose(leave);
    return reply;
  });
}

/** The keys are the JSON of the ports. */
function changes(before: ListeningPorts, now: ListeningPorts): string[] {
  const lines = (type: string, ports: ListeningPorts, others: ListeningPorts) =>
    [...ports.keys()].flatMap((key) => (others.has(key) ? [] : [`{"type":"${type}",${key.slice(1)}`]));
  return [...lines('disappear', before, now), ...lines('appear', now, before)];
}

function waitRoute(app: FastifyInstance, watch: PortWatch, places: StreamPlaces): void {
  app.post<{ Params: { port: string } }>(PATH, { onRequest: ignoreBody }, async (request, reply) => {
    const port = portNamed(request.params.port);
    const { timeoutMs } = WAIT_QUERY.read(request.query, '');
    places.enter(reply.raw);
    const late = `nothing listens at port ${port} of localhost after ${timeoutMs} ms`;
    request.call.expireAfter(timeoutMs, late);
    await watch.read();
    return listenerAt(port, watch, request.call);
  });
}

/** Resolves with what listens at the port. Throws the reason when the call is aborted before. */
async function listenerAt(port: number, watch: PortWatch, call: CallScope): Promise<ListeningPort> {
  const { promise, resolve } = call.pending<ListeningPort>();
  const leave = watch.follow((ports) => {
    const found = [...ports.values()].find((one) => one.port === port);
    if (found) resolve(found);
  });
  return promise.finally(leave);
}
