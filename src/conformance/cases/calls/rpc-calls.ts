import type { TestedDaemon } from '../../suite/daemon.ts';
import { sh } from '../../suite/running.ts';

export const STAT_PATH = '/filesystem.Filesystem/Stat';
export const START_PATH = '/process.Process/Start';

/** A request to start a process that writes `hello`. */
export const helloRequest = (daemon: TestedDaemon) => ({
  process: sh('printf hello'),
  stdin: false,
  tag: daemon.run.tag,
});

/** A POST with the token and a content type. */
export const postTyped = (
  daemon: TestedDaemon,
  path: string,
  type: string,
  body: string | Uint8Array,
  headers = {},
) => daemon.rest('POST', path, { headers: { 'content-type': type, ...headers }, body });

/** A unary call in JSON. */
export const postUnary = (daemon: TestedDaemon, path: string, message: unknown, headers = {}) =>
  postTyped(daemon, path, 'application/json', JSON.stringify(message), headers);
