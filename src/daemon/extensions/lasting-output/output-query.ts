import { choice, flag, object, wholeNumber } from '../../../base/shape.ts';
import { STREAMS } from '../../services/process/output/output-store.ts';

export const OUTPUT_QUERY = object({
  stream: choice(STREAMS, null),
  from: wholeNumber,
  follow: flag,
});
