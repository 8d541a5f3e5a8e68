import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { StreamPlaces } from '../../http/protocol/stream-places.ts';
import { LineStream } from '../../http/rest/line-stream.ts';
import { MetricsReader } from '../../services/guest/metrics.ts';
import { METRICS_QUERY, METRICS_STREAM_QUERY } from './metrics-queries.ts';
import { readPressure } from './pressure.ts';

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
 * Adds `GET /metrics/stream`. It sends the figures of the guest with the pressure after each interval. A client that does not
 * read misses some.
 */
export function metricsStreamRoutes(app: FastifyInstance, places: StreamPlaces): void {
  const tickers = new Tickers();
  app.get('/metrics/stream', (request, reply) => {
    const { interval: seconds } = METRICS_STREAM_QUERY.read(request.query, '');
    const stream = LineStream.begin(request, reply, places);
    stream?.onClose(tickers.join(seconds, (json) => stream.isIdle && stream.send([json])));
    return reply;
  });
}

type Listener = (json: string) => unknown;

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
