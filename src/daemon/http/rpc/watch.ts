import { setImmediate as nextTurn } from 'node:timers/promises';
import { create } from '@bufbuild/protobuf';
import type { Feed } from '../../../base/feed.ts';
import {
  EventType,
  Filesystem,
  type FilesystemEvent,
  FilesystemEventSchema,
  type WatchDirRequestSchema,
  type WatchDirResponse,
  WatchDirResponseSchema,
} from '../../../gen/filesystem/filesystem_pb.js';
import { resolvePath } from '../../linux/paths/paths.ts';
import type { EntrySource } from '../../services/files/entries/entry.ts';
import { stat } from '../../services/files/entries/stat.ts';
import type { Guest } from '../../services/guest/guest.ts';
import type { WatchEvent, WatchEventType } from '../../services/watch/local/event.ts';
import type { PolledWatches } from '../../services/watch/polled.ts';
import type { Watch, Watcher } from '../../services/watch/watcher.ts';
import { encodeFrame } from '../protocol/codec.ts';
import { type UnaryRpc, unaryRpc } from '../protocol/connect-unary.ts';
import type { EventStream } from '../protocol/event-stream.ts';
import { callerOf } from '../protocol/request.ts';
import { entryToMessage } from './entry.ts';
import { FILESYSTEM_MESSAGES } from './filesystem.ts';

const EVENT_TYPE: Readonly<Record<WatchEventType, EventType>> = {
  create: EventType.CREATE,
  write: EventType.WRITE,
  remove: EventType.REMOVE,
  rename: EventType.RENAME,
  chmod: EventType.CHMOD,
  rescan: EventType.UNSPECIFIED,
};

/** These events include the entry if the client asks for it. */
const DESCRIBED: ReadonlySet<WatchEventType> = new Set<WatchEventType>(['create', 'write', 'chmod']);

/** This many entries are described at once. Each has paths, and attributes that a guest process may have made large. */
const DESCRIBED_AT_ONCE = 64;
/** One answer has events of about this many bytes; the next call gets the others. */
const EVENT_MESSAGES = { ...FILESYSTEM_MESSAGES, enoughBytes: 4 * 1024 * 1024 };

export interface WatchDependencies {
  readonly watcher: Watcher;
  readonly polled: PolledWatches;
  readonly guest: Guest;
  readonly entries: EntrySource;
}

/** Returns WatchDir, which sends `start` when everything is watched, and then the events. */
export function watchDirStream({
  watcher,
  guest,
  entries,
}: WatchDependencies): EventStream<
  WatchDirResponse,
  typeof WatchDirRequestSchema,
  typeof WatchDirResponseSchema
> {
  return {
    method: Filesystem.method.watchDir,
    ignoreUnknownFields: false,
    ownsTimeout: false,
    async open(request, call) {
      const path = resolvePath(request.path, callerOf(call, guest), guest.defaultWorkdir);
      call.subject = { path };
      const { recursive, allowNetworkMounts } = request;
      const watch = await watcher.watch(path, { recursive, allowNetworkMounts, signal: call.signal });
      return feedOf(watch, request.includeEntry ? entries : null);
    },
    message: (response) => response,
    addFrame: (response, codec, batch) => batch.add(encodeFrame(WatchDirResponseSchema, response, codec)),
    isLast: () => false,
    keepalive: create(WatchDirResponseSchema, { event: { case: 'keepalive', value: {} } }),
  };
}

/** Returns the events of a watch as messages, after `start`. `entries` describes entries; null: events do not include them. */
function feedOf(watch: Watch, entries: EntrySource | null): Feed<WatchDirResponse> {
  let hasStarted = false;
  return {
    async next() {
      if (!hasStarted) {
        hasStarted = true;
        return [create(WatchDirResponseSchema, { event: { case: 'start', value: {} } })];
      }
      const events = await watch.next(entries ? DESCRIBED_AT_ONCE : undefined);
      if (events === null) return null;
      const messages = await messagesOf(events, entries);
      return messages.map((value) =>
        create(WatchDirResponseSchema, { event: { case: 'filesystem', value } }),
      );
    },
    [Symbol.dispose]: () => watch[Symbol.dispose](),
  };
}

function messagesOf(events: readonly WatchEvent[], entries: EntrySource | null): Promise<FilesystemEvent[]> {
  return Promise.all(events.map((event) => eventMessage(event, entries)));
}

async function eventMessage(event: WatchEvent, entries: EntrySource | null): Promise<FilesystemEvent> {
  // An entry that was removed meanwhile or cannot be read is left out of the event.
  const entry =
    entries && DESCRIBED.has(event.type) ? await stat(event.path, entries).catch(() => null) : null;
  return create(FilesystemEventSchema, {
    name: event.name,
    type: EVENT_TYPE[event.type],
    ...(entry && { entry: entryToMessage(entry) }),
  });
}

export function watcherRpcs({ polled, guest, entries }: WatchDependencies): UnaryRpc[] {
  const { method } = Filesystem;
  return [
    unaryRpc(method.createWatcher, FILESYSTEM_MESSAGES, async (request, call) => {
      const path = resolvePath(request.path, callerOf(call, guest), guest.defaultWorkdir);
      call.subject = { path };
      const { recursive, allowNetworkMounts, includeEntry } = request;
      return { watcherId: await polled.create(path, { recursive, allowNetworkMounts, includeEntry }) };
    }),
    unaryRpc(method.getWatcherEvents, EVENT_MESSAGES, async function* ({ watcherId }) {
      const source = polled.optionsOf(watcherId).includeEntry ? entries : null;
      const most = source ? DESCRIBED_AT_ONCE : undefined;
      for (const part of await polled.takeUpToNow(watcherId, most)) {
        yield { events: await messagesOf(part, source) };
        await nextTurn();
      }
    }),
    unaryRpc(method.removeWatcher, FILESYSTEM_MESSAGES, ({ watcherId }) => {
      polled.remove(watcherId);
      return {};
    }),
  ];
}
