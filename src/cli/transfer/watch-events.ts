import type { FilesystemEvent } from '../../gen/filesystem/filesystem_pb.js';
import { type Connection, KEEPALIVE_S } from '../connection/connection.ts';

/** Describes the watched path. */
interface WatchedPath {
  readonly path: string;
  readonly recursive?: boolean;
  readonly includeEntry?: boolean;
  readonly allowNetworkMounts?: boolean;
}

/**
 * Yields the events of a watch. It begins with `start` when the watch is active, and ends when the directory is removed.
 * Throws `Failure`.
 */
export async function* watchEvents(
  connection: Connection,
  watched: WatchedPath,
  signal?: AbortSignal,
): AsyncGenerator<'start' | FilesystemEvent> {
  const left = new AbortController();
  signal?.addEventListener('abort', () => left.abort(), { once: true, signal: left.signal });
  const headers = { 'Keepalive-Ping-Interval': String(KEEPALIVE_S) };
  try {
    for await (const { event } of connection.files.watchDir(watched, { headers, signal: left.signal })) {
      if (event.case === 'start') yield 'start';
      if (event.case === 'filesystem') yield event.value;
    }
  } catch (error) {
    throw await connection.failure(error);
  } finally {
    left.abort();
  }
}
