import type { ServiceImpl } from '@connectrpc/connect';
import type { EntryInfo, Filesystem, ListDirResponseSchema } from '../../../gen/filesystem/filesystem_pb.js';
import { resolvePath } from '../../linux/paths/paths.ts';
import type { User } from '../../linux/system/users.ts';
import type { EntrySource } from '../../services/files/entries/entry.ts';
import { listDir } from '../../services/files/entries/list-dir.ts';
import { makeDir } from '../../services/files/entries/make-dir.ts';
import { remove } from '../../services/files/entries/remove.ts';
import { stat } from '../../services/files/entries/stat.ts';
import { move } from '../../services/files/move.ts';
import type { Guest } from '../../services/guest/guest.ts';
import type { WriteGate } from '../../services/pause/write-gate.ts';
import type { UnaryCall } from '../connect/connect-unary.ts';
import type { RequestHeaders } from '../connect/request.ts';
import { entryToMessage } from './entry.ts';

export interface FilesystemDependencies {
  readonly guest: Guest;
  readonly entries: EntrySource;
  /** Refuses changes to files during a freeze of the file system. */
  readonly gate: WriteGate;
  /** The user on whose behalf a call runs. */
  userOf(call: { readonly requestHeader: RequestHeaders }): User;
}

/** The unary calls of `filesystem.Filesystem`. */
export function filesystemService({ guest, entries, gate, userOf }: FilesystemDependencies) {
  const resolve = (path: string, user: User) => resolvePath(path, user, guest.defaultWorkdir);
  /** The path that the call is about. */
  const resolveFor = (call: UnaryCall, path: string) => {
    const resolved = resolve(path, userOf(call));
    call.about?.({ path: resolved });
    return resolved;
  };
  return {
    async stat({ path }, context: UnaryCall) {
      const entry = await stat(resolveFor(context, path), entries);
      return { entry: entryToMessage(entry) };
    },
    async listDir({ path, depth }, context: UnaryCall<typeof ListDirResponseSchema>) {
      const { list } = context;
      const all: EntryInfo[] = [];
      for await (const batch of listDir(resolveFor(context, path), depth, entries)) {
        const messages = batch.map(entryToMessage);
        if (list) list.add({ entries: messages });
        else all.push(...messages);
        context.signal.throwIfAborted();
      }
      return { entries: all };
    },
    async makeDir({ path }, context: UnaryCall) {
      const user = userOf(context);
      const target = resolveFor(context, path);
      const entry = await gate.run(() => makeDir(target, user, entries));
      return { entry: entryToMessage(entry) };
    },
    async move({ source, destination }, context: UnaryCall) {
      const user = userOf(context);
      const from = resolveFor(context, source);
      const entry = await gate.run(() =>
        move(from, resolve(destination, user), user, entries, context.signal),
      );
      return { entry: entryToMessage(entry) };
    },
    async remove({ path }, context: UnaryCall) {
      const target = resolveFor(context, path);
      await gate.run(() => remove(target, entries.lanes, context.signal));
      return {};
    },
  } satisfies Partial<ServiceImpl<typeof Filesystem>>;
}
