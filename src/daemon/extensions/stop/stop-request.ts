import { invalid, object, type Shape } from '../../../base/shape.ts';

const GRACE_MS = { default: 5000, most: 600_000 };

const grace: Shape<number> = {
  schema: { type: 'integer', minimum: 0, default: GRACE_MS.default },
  read(value, name) {
    if (value === undefined || value === null) return GRACE_MS.default;
    if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= GRACE_MS.most)
      return value;
    throw invalid(name, `a whole number from 0 to ${GRACE_MS.most}`);
  },
};

export const STOP_REQUEST = object({ graceMs: grace });
