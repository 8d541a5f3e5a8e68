import type { Shape } from '../../../src/base/shape.ts';
import { EXEC_REQUEST } from '../../../src/daemon/extensions/exec/exec-request.ts';
import { OUTPUT_QUERY } from '../../../src/daemon/extensions/lasting-output/output-query.ts';
import { WAIT_QUERY } from '../../../src/daemon/extensions/ports/ports-queries.ts';
import { STOP_REQUEST } from '../../../src/daemon/extensions/stop/stop-request.ts';
import { TERMINAL_QUERY } from '../../../src/daemon/extensions/terminal/terminal-messages.ts';
import { METRICS_QUERY, METRICS_STREAM_QUERY } from '../../../src/daemon/extensions/usage/metrics-queries.ts';
import { COMPOSE_REQUEST, downloadQuery, UPLOAD_QUERY } from '../../../src/daemon/http/rest/files/queries.ts';
import { FREEZE_QUERY, HEALTH_QUERY } from '../../../src/daemon/http/rest/queries.ts';
import { INIT_REQUEST } from '../../../src/daemon/services/init/init-request.ts';

const DOWNLOAD_QUERY = downloadQuery(['tar', 'tar.gz', 'zip']);

/** The shapes by which routes read their queries and JSON bodies. */
export const READ: Readonly<
  Record<string, { readonly query?: Shape<unknown>; readonly body?: Shape<unknown> }>
> = {
  getHealth: { query: HEALTH_QUERY },
  getMetrics: { query: METRICS_QUERY },
  followMetrics: { query: METRICS_STREAM_QUERY },
  exec: { body: EXEC_REQUEST },
  stopProcess: { body: STOP_REQUEST },
  readOutput: { query: OUTPUT_QUERY },
  waitForPort: { query: WAIT_QUERY },
  openTerminal: { query: TERMINAL_QUERY },
  init: { body: INIT_REQUEST },
  downloadFile: { query: DOWNLOAD_QUERY },
  describeFile: { query: DOWNLOAD_QUERY },
  uploadFiles: { query: UPLOAD_QUERY },
  composeFiles: { body: COMPOSE_REQUEST },
  freeze: { query: FREEZE_QUERY },
};
