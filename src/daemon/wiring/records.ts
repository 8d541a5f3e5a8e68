import type { Logger } from 'pino';
import type { Config } from '../config/config.ts';
import { RecordStore } from '../linux/memory/record-store.ts';
import { headOf } from '../services/handover/state.ts';

/** Records what the next daemon needs if this one is killed (docs/decisions/020-crashes.md). */
export function createRecords({ notifySocket, version }: Config, logger: Logger): RecordStore {
  return new RecordStore(notifySocket, headOf(version), (reason) =>
    logger.error({ reason }, 'cannot keep a record: a crash of the daemon may lose processes'),
  );
}
