import { create } from '@bufbuild/protobuf';
import type { ServiceImpl } from '@connectrpc/connect';
import type { Feed } from '../../base/feed.ts';
import {
  EventType,
  Filesystem,
  type FilesystemEvent,
  FilesystemEventSchema,
  type GetWatcherEventsResponseSchema,
  type WatchDirRequest,
  type WatchDirRequestSchema,
  type WatchDirResponse,
  WatchDirResponseSchema,
} from '../../gen/filesystem/filesystem_pb.js';
import { resolvePath } from '../os/paths.ts';
import type { User } from '../os/users.ts';
import type { EntrySource } from '../services/files/entry.ts';
import { stat } from '../services/files/stat.ts';
import type { Guest } from '../services/guest/guest.ts';
import type { WatchEvent, WatchEventType } from '../services/watch/event.ts';
import type { PolledWatches } from '../services/watch/polled.ts';
import type { Watch, Watcher } from '../services/watch/watcher.ts';
import { encodeFrame } from './codec.ts';
import type { UnaryCall } from './connect-unary.ts';
import { entryToMessage } from './entry.ts';
import type { EventStream } from './event-stream.ts';
import { callerOf } from './request.ts';

const EVENT_TYPE: Readonly<Record<WatchEventType, EventType>> = {
  create: EventType.CREATE,
  write: EventType.WRITE,
  remove: EventType.REMOVE,
  rename: EventType.RENAME,
  chmod: EventType.CHMOD,
  rescan: EventType.UNSPECIFIED,
};

/** Events that include the entry if requested. */
const DESCRIBED: ReadonlySet<WatchEventType> = new Set<WatchEventType>(['create', 'write', 'chmod']);

/** The approximate bytes of an entry in an event, without names. */
const ENTRY_BYTES = 256;

export interface WatchDependencies {
  readonly watcher: Watcher;
  readonly polled: PolledWatches;
  readonly guest: Guest;
  readonly entries: EntrySource;
}

/** WatchDir: `start` when everything is watched, then the events. */
export function watchDirStream(
  dependencies: WatchDependencies,
): EventStream<WatchDirResponse, typeof WatchDirRequestSchema, typeof WatchDirResponseSchema> {
  const { watcher, guest, entries } = dependencies;
  return {
    method: Filesystem.method.watchDir,
    ignoreUnknownFields: false,
    ownsTimeout: false,
    async open(request, { headers, abortSignal, about }) {
      const path = resolvePath(request.path, callerOf(headers, guest), guest.defaultWorkdir);
      about?.({ path });
      const { recursive, allowNetworkMounts } = request;
      const watch = await watcher.watch(path, { recursive, allowNetworkMounts, signal: abortSignal() });
      return new WatchFeed(watch, request.includeEntry ? entries : null);
    },
    message: (response) => response,
    addFrame: (response, codec, batch) => batch.add(encodeFrame(WatchDirResponseSchema, response, codec)),
    isLast: () => false,
    keepalive: create(WatchDirResponseSchema, { event: { case: 'keepalive', value: {} } }),
  };
}

/** The events of a watch as messages, after `start`. */
class WatchFeed implements Feed<WatchDirResponse> {
  readonly #watch: Watch;
  readonly #entries: EntrySource | null;
  #started = false;

  /** `entries`: to include entries in events, or null. */
  constructor(watch: Watch, entries: EntrySource | null) {
    this.#watch = watch;
    this.#entries = entries;
  }

  async next(): Promise<readonly WatchDirResponse[] | null> {
    if (!this.#started) {
      this.#started = true;
      return [create(WatchDirResponseSchema, { event: { case: 'start', value: {} } })];
    }
    const events = await this.#watch.next();
    if (events === null) return null;
    const messages = await Promise.all(events.map((event) => eventMessage(event, this.#entries)));
    return messages.map((value) => create(WatchDirResponseSchema, { event: { case: 'filesystem', value } }));
  }

  [Symbol.dispose](): void {
    this.#watch[Symbol.dispose]();
  }
}

async function eventMessage(event: WatchEvent, entries: EntrySource | null): Promise<FilesystemEvent> {
  // If the entry has been removed or cannot be read, the event is reported without it.
  const entry =
    entries && DESCRIBED.has(event.type) ? await stat(event.path, entries).catch(() => null) : null;
  return create(FilesystemEventSchema, {
    name: event.name,
    type: EVENT_TYPE[event.type],
    ...(entry && { entry: entryToMessage(entry) }),
  });
}

/** The calls for polled watches. */
export function watcherService({ polled, guest, entries }: WatchDependencies) {
  const pathOf = (request: Pick<WatchDirRequest, 'path'>, user: User) =>
    resolvePath(request.path, user, guest.defaultWorkdir);
  /** The watches that include entries in events. */
  const withEntries = new Set<string>();
  return {
    async createWatcher(request, context: UnaryCall) {
      const path = pathOf(request, callerOf(context.requestHeader, guest));
      context.about?.({ path });
      const { recursive, allowNetworkMounts, includeEntry } = request;
      const watcherId = await polled.create(path, { recursive, allowNetworkMounts });
      if (includeEntry) withEntries.add(watcherId);
      return { watcherId };
    },
    async getWatcherEvents({ watcherId }, { list }: UnaryCall<typeof GetWatcherEventsResponseSchema>) {
      const events = await polled.takeUpToNow(watcherId);
      const source = withEntries.has(watcherId) ? entries : null;
      const messagesOf = async (some: readonly WatchEvent[]) => ({
        events: await Promise.all(some.map((event) => eventMessage(event, source))),
      });
      if (!list) return messagesOf(events);
      return list.addAll(events, ({ path }) => ENTRY_BYTES + path.length, messagesOf);
    },
    removeWatcher({ watcherId }) {
      polled.remove(watcherId);
      withEntries.delete(watcherId);
      return {};
    },
  } satisfies Partial<ServiceImpl<typeof Filesystem>>;
}
