import { Filesystem } from '../../../gen/filesystem/filesystem_pb.js';
import type { Extension } from '../../http/extension.ts';
import { unaryRpc } from '../../http/protocol/connect-unary.ts';
import { callerOf } from '../../http/protocol/request.ts';
import { entryToMessage } from '../../http/rpc/entry.ts';
import { FILESYSTEM_MESSAGES, type FilesystemDependencies } from '../../http/rpc/filesystem.ts';
import { resolvePath } from '../../linux/paths/paths.ts';
import { copyEntry } from './copy-entry.ts';

/** Adds `filesystem.Filesystem/Copy`. */
export function createCopy({ guest, entries, gate }: FilesystemDependencies): Extension {
  const copy = unaryRpc(Filesystem.method.copy, FILESYSTEM_MESSAGES, async (request, call) => {
    const user = callerOf(call, guest);
    const source = resolvePath(request.source, user, guest.defaultWorkdir);
    const destination = resolvePath(request.destination, user, guest.defaultWorkdir);
    call.subject = { path: source };
    const entry = await gate.run(() => copyEntry(source, destination, user, entries, call.signal));
    return { entry: entryToMessage(entry) };
  });
  return { rpcs: [copy] };
}
