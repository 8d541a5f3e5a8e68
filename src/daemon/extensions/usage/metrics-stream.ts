import type { ServerResponse } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { Negotiator } from 'negotiator';
import { onAbort } from '../../../base/abort.ts';
import type { StreamPlaces } from '../../http/connect/stream-places.ts';
import { MetricsReader } from '../../services/guest/metrics.ts';
import { METRICS_QUERY, METRICS_STREAM_QUERY } from './metrics-queries.ts';
import { readPressure } from './pressure.ts';

const NDJSON = 'application/x-ndjson';
const EVENTS = 'text/event-stream';

/** Adds the pressure to the JSON of `GET /metrics?pressure=true`. Must be called before that route is added. */
export function addPressure(app: FastifyInstance): void {
  app.addHook('onRoute', (route) => {
    if (route.url !== '/metrics') return;
    route.preSerialization = async (request: FastifyRequest, _reply: FastifyReply, payload: unknown) => {
      const { pressure } = METRICS_QUERY.read(request.query, '');
      return pressure && isObject(payload) ? { ...payload, pressure: await readPressure() } : payload;
    };
  });
}

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null;

/**
 * Adds `GET /metrics/stream`. It sends the figures of the guest with the pressure after each interval, as one JSON object on
 * each line, or as events for a page (`Accept: text/event-stream`). A client that does not read misses some. A stream takes a
 * place of a stream.
 */
export function metricsStreamRoutes(app: FastifyInstance, places: StreamPlaces): void {
  const tickers = new Tickers();
  app.get('/metrics/stream', (request, reply) => {
    const { interval: seconds } = METRICS_STREAM_QUERY.read(request.query, '');
    const { call } = request;
    const type = new Negotiator({ headers: { accept: request.headers.accept } }).mediaTypes([
      NDJSON,
      EVENTS,
    ])[0];
    const isEvents = type === EVENTS;
    reply.headers({
      'content-type': isEvents ? EVENTS : NDJSON,
      vary: 'Accept',
      'x-content-type-options': 'nosniff',
    });
    if (request.method === 'HEAD') return reply.send();
    places.take(reply.raw);
    reply.hijack();
    const response = reply.raw;
    response.writeHead(200, reply.getHeaders() as Record<string, string>).flushHeaders();
    const leave = tickers.join(seconds, (json) =>
      write(response, isEvents ? `data: ${json}\n\n` : `${json}\n`),
    );
    response.once('close', leave);
    onAbort(call.signal, () => response.end());
    return reply;
  });
}

/** Writes a line, unless the client has not taken the last one. */
function write(response: ServerResponse, line: string): void {
  if (response.writableLength === 0 && !response.writableEnded) response.write(line);
}

type Listener = (json: string) => void;

/** Reads the figures once after each interval for all its followers. */
class Tickers {
  readonly #followers = new Map<number, Set<Listener>>();

  /** Calls `listener` after each interval. Returns a function that ends the calls. */
  join(seconds: number, listener: Listener): () => void {
    const known = this.#followers.get(seconds);
    const followers = known ?? new Set();
    followers.add(listener);
    if (!known) {
      this.#followers.set(seconds, followers);
      this.#tick(seconds, followers);
    }
    return () => void followers.delete(listener);
  }

  /** Ticks until there are no followers. */
  #tick(seconds: number, followers: ReadonlySet<Listener>): void {
    const metrics = new MetricsReader();
    // Without a free descriptor, the interval has no line.
    const read = () => metrics.read().catch(() => null);
    // The next reading reports the share of the CPU since this one.
    const first = read();
    const tick = async () => {
      await first;
      if (followers.size === 0) {
        this.#followers.delete(seconds);
        return;
      }
      const [figures, pressure] = await Promise.all([read(), readPressure()]);
      const json = JSON.stringify({ ...figures, pressure });
      if (figures) for (const tell of followers) tell(json);
      schedule();
    };
    const schedule = () => void setTimeout(() => void tick(), seconds * 1000).unref();
    schedule();
  }
}
