import { flag, invalid, object, parameter, type Shape } from '../../../base/shape.ts';

const MOST_SECONDS = 3600;

/** Intervals are whole seconds, so that all clients of one interval share its figures. */
const interval: Shape<number> = {
  schema: { type: 'integer', minimum: 1, default: 1 },
  read(value, name) {
    const seconds = Number(parameter.read(value, name) || '1');
    if (Number.isInteger(seconds) && seconds >= 1 && seconds <= MOST_SECONDS) return seconds;
    throw invalid(name, `a whole number of seconds from 1 to ${MOST_SECONDS}`);
  },
};

export const METRICS_QUERY = object({ pressure: flag });
export const METRICS_STREAM_QUERY = object({ interval });
