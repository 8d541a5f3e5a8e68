import { Filesystem } from '../../../gen/filesystem/filesystem_pb.js';
import { resolvePath } from '../../linux/paths/paths.ts';
import type { User } from '../../linux/system/users.ts';
import type { EntrySource } from '../../services/files/entries/entry.ts';
import { listDir } from '../../services/files/entries/list-dir.ts';
import { makeDir } from '../../services/files/entries/make-dir.ts';
import { removeAt } from '../../services/files/entries/remove.ts';
import { stat } from '../../services/files/entries/stat.ts';
import { move } from '../../services/files/move.ts';
import type { Guest } from '../../services/guest/guest.ts';
import type { WriteGate } from '../../services/pause/write-gate.ts';
import type { CallScope } from '../admission/call-scope.ts';
import { type UnaryRpc, unaryRpc } from '../protocol/connect-unary.ts';
import { callerOf } from '../protocol/request.ts';
import { entryToMessage } from './entry.ts';

export interface FilesystemDependencies {
  readonly guest: Guest;
  readonly entries: EntrySource;
  /** Refuses changes to files during a freeze of the file system. */
  readonly gate: WriteGate;
}

/** The interface forbids unknown properties in messages of this service. */
export const FILESYSTEM_MESSAGES = { ignoreUnknownFields: false, isOwnJson: false };

/** Returns the unary RPCs of `filesystem.Filesystem`, except those for watchers. */
export function filesystemRpcs({ guest, entries, gate }: FilesystemDependencies): UnaryRpc[] {
  const { method } = Filesystem;
  const resolve = (path: string, user: User) => resolvePath(path, user, guest.defaultWorkdir);
  /** Resolves the path that the call is about, and records it as the subject of the call. */
  const resolveFor = (call: CallScope, path: string) => {
    const resolved = resolve(path, callerOf(call, guest));
    call.subject = { path: resolved };
    return resolved;
  };
  return [
    unaryRpc(method.stat, FILESYSTEM_MESSAGES, async ({ path }, call) => {
      const entry = await stat(resolveFor(call, path), entries);
      return { entry: entryToMessage(entry) };
    }),
    unaryRpc(method.listDir, FILESYSTEM_MESSAGES, async function* ({ path, depth }, call) {
      const keep = (bytes: number) => call.holdMore(bytes);
      for await (const batch of listDir(resolveFor(call, path), depth, entries, keep))
        yield { entries: batch.map(entryToMessage) };
    }),
    unaryRpc(method.makeDir, FILESYSTEM_MESSAGES, async ({ path }, call) => {
      const user = callerOf(call, guest);
      const target = resolveFor(call, path);
      const entry = await gate.run(() => makeDir(target, user, entries));
      return { entry: entryToMessage(entry) };
    }),
    unaryRpc(method.move, FILESYSTEM_MESSAGES, async ({ source, destination }, call) => {
      const user = callerOf(call, guest);
      const from = resolveFor(call, source);
      const to = resolve(destination, user);
      const entry = await gate.run(() => move(from, to, user, entries, call.signal));
      return { entry: entryToMessage(entry) };
    }),
    unaryRpc(method.remove, FILESYSTEM_MESSAGES, async ({ path }, call) => {
      const target = resolveFor(call, path);
      await gate.run(() => removeAt(target, entries.lanes, call.signal));
      return {};
    }),
  ];
}
