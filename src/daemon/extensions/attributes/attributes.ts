import type { Timestamp } from '@bufbuild/protobuf/wkt';
import { EnvdError } from '../../../base/errors.ts';
import { Filesystem, type SetAttributesRequest } from '../../../gen/filesystem/filesystem_pb.js';
import type { Extension } from '../../http/extension.ts';
import { unaryRpc } from '../../http/protocol/connect-unary.ts';
import { callerOf } from '../../http/protocol/request.ts';
import { entryToMessage } from '../../http/rpc/entry.ts';
import { FILESYSTEM_MESSAGES, type FilesystemDependencies } from '../../http/rpc/filesystem.ts';
import { resolvePath } from '../../linux/paths/paths.ts';
import type { UserDatabase } from '../../linux/system/users.ts';
import { makeLink } from './make-link.ts';
import { type NewAttributes, setAttributes } from './set-attributes.ts';

const SECOND = 1_000_000_000n;

/** Adds `filesystem.Filesystem/SetAttributes` and `Link`. */
export function createAttributes({ guest, entries, gate }: FilesystemDependencies): Extension {
  const { method } = Filesystem;
  return {
    rpcs: [
      unaryRpc(method.setAttributes, FILESYSTEM_MESSAGES, async (request, call) => {
        const user = callerOf(call, guest);
        const path = resolvePath(request.path, user, guest.defaultWorkdir);
        call.subject = { path };
        const attributes = attributesOf(request, entries.users);
        const create = request.touch ? user : null;
        const entry = await gate.run(() => setAttributes(path, attributes, create, entries));
        return { entry: entryToMessage(entry) };
      }),
      unaryRpc(method.link, FILESYSTEM_MESSAGES, async ({ target, path: asked }, call) => {
        const user = callerOf(call, guest);
        const path = resolvePath(asked, user, guest.defaultWorkdir);
        call.subject = { path };
        const entry = await gate.run(() => makeLink(target, path, user, entries));
        return { entry: entryToMessage(entry) };
      }),
    ],
  };
}

function attributesOf(request: SetAttributesRequest, users: UserDatabase): NewAttributes {
  const { mode, owner, group, touch } = request;
  const now = touch ? BigInt(Date.now()) * 1_000_000n : null;
  return {
    mode: mode === '' ? null : bitsOf(mode),
    uid: owner === '' ? null : uidOf(owner, users),
    gid: group === '' ? null : gidOf(group, users),
    accessedNs: nanoseconds(request.accessedTime) ?? now,
    modifiedNs: nanoseconds(request.modifiedTime) ?? now,
  };
}

/** Returns permission bits without the set-id bits, because those give the rights of the owner to others. */
function bitsOf(mode: string): number {
  if (/^0?[01]?[0-7]{3}$/.test(mode)) return Number.parseInt(mode, 8);
  throw new EnvdError('invalid_argument', `mode must be an octal number from 000 to 1777, not '${mode}'`);
}

function uidOf(owner: string, users: UserDatabase): number {
  try {
    return users.lookup(owner).uid;
  } catch (error) {
    throw new EnvdError('invalid_argument', `no such user: '${owner}'`, { cause: error });
  }
}

function gidOf(group: string, users: UserDatabase): number {
  const gid = users.groupId(group);
  if (gid === null) throw new EnvdError('invalid_argument', `no such group: '${group}'`);
  return gid;
}

function nanoseconds(time: Timestamp | undefined): bigint | null {
  return time ? time.seconds * SECOND + BigInt(time.nanos) : null;
}
