import { integer, object } from '../../../base/shape.ts';

const GRACE_MS = { default: 5000, most: 600_000 };

export const STOP_REQUEST = object({ graceMs: integer(0, GRACE_MS.most, GRACE_MS.default) });
