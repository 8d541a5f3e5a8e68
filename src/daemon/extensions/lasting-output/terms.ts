import { integer, object, type ValuesOf } from '../../../base/shape.ts';
import type { KeepOutput } from '../../../gen/process/process_pb.js';

const DEFAULT_BYTES = 1024 * 1024;
const SECONDS = { default: 3600, most: 604_800 };

const MEMBERS = {
  bytes: integer(1, Number.MAX_SAFE_INTEGER, DEFAULT_BYTES),
  seconds: integer(1, SECONDS.most, SECONDS.default),
};

/** How much of the output of one process is kept, and for how long. */
export interface Terms extends ValuesOf<typeof MEMBERS> {
  /** Whether a full disk drops the oldest output, and does not make the process wait. */
  readonly dropsWhenFull: boolean;
}

const SHAPE = object(MEMBERS);

/** Throws `invalid_argument`. */
export function termsOf({ bytes, seconds, dropWhenFull }: KeepOutput): Terms {
  const read = SHAPE.read({ bytes: toNumber(bytes), seconds: toNumber(seconds) }, 'keepOutput');
  return { ...read, dropsWhenFull: dropWhenFull };
}

const toNumber = (value: bigint | undefined) => (value === undefined ? undefined : Number(value));
