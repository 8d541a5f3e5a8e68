import type { FastifyRequest } from 'fastify';
import { Negotiator } from 'negotiator';
import { loadedOnce } from '../../../base/loaded-once.ts';
import type { Extension } from '../../http/extension.ts';
import type { TextFormat } from './metrics-page.ts';
import type { DaemonTelemetry } from './prometheus.ts';

const JSON_TYPE = 'application/json';

const TEXT_FORMATS: Readonly<Record<string, TextFormat>> = {
  'text/plain; version=0.0.4': 'prometheus',
  'application/openmetrics-text; version=1.0.0': 'openmetrics',
};

/** Adds metrics of the daemon in Prometheus' formats to `GET /metrics`, for clients that prefer them to JSON. */
export function prometheusExtension(sources: Omit<DaemonTelemetry, 'calls'>): Extension {
  return {
    addRoutes(app, calls) {
      // The first request loads the library, because most daemons are never scraped.
      const exporter = loadedOnce(
        async () => new (await import('./prometheus.ts')).Exporter({ ...sources, calls }),
      );
      app.addHook('onRoute', (route) => {
        if (route.url !== '/metrics') return;
        const { handler } = route;
        route.handler = async function (request, reply) {
          reply.header('vary', 'Accept');
          const format = textFormatOf(request);
          if (format === null) return handler.call(this, request, reply);
          const { contentType, text } = await (await exporter()).render(format);
          return reply.type(contentType).send(text);
        };
      });
    },
  };
}

/** Returns the text format that the client prefers; null: JSON, also when the client accepts none of the available types. */
function textFormatOf({ headers }: FastifyRequest): TextFormat | null {
  const negotiator = new Negotiator({ headers: { accept: headers.accept } });
  const best = negotiator.mediaTypes([JSON_TYPE, ...Object.keys(TEXT_FORMATS)])[0] ?? JSON_TYPE;
  return TEXT_FORMATS[best] ?? null;
}
