import { EnvdError, messageOf } from '../../../base/errors.ts';
import type { Transfers } from '../../../base/tally.ts';
import { resolvePath } from '../../linux/paths/paths.ts';
import type { User } from '../../linux/system/users.ts';
import type { Guest } from '../guest/guest.ts';
import type { WriteGate } from '../pause/write-gate.ts';
import { authorizeFile } from './authorize.ts';
import { type Download, openDownload } from './download.ts';
import type { EntrySource } from './entries/entry.ts';
import type { Metadata } from './entries/metadata.ts';
import type { FileOperation } from './signature.ts';
import { Archives } from './tar/archives.ts';
import type { Unpacked } from './tar/unpack.ts';
import { type ComposeRequest, compose } from './uploads/compose.ts';
import {
  createUploadResources,
  type UploadContext,
  type UploadedFile,
  type UploadPart,
  upload,
} from './uploads/upload.ts';

/** The file of a request, and the caller's credentials. */
export interface FileQuery {
  /** As sent, empty when absent. */
  readonly path: string;
  readonly username: string;
  readonly signature: string | undefined;
  /** Unix time in seconds, as sent. */
  readonly expiration: string | undefined;
  readonly presentedToken: string | undefined;
}

/** What was unpacked, and where. */
export type UnpackedArchive = Unpacked & { readonly path: string };

/** Options of an upload. */
export type UploadOptions = Pick<UploadContext, 'durable' | 'verified' | 'signal' | 'change'> & {
  readonly metadata: Metadata;
};

/** Downloads, uploads and compositions of files. */
export interface FileServices {
  /**
   * Authorises a request and returns the user it runs as. Throws `unauthenticated` without a valid token or signature,
   * and for an unknown user.
   */
  admit(query: FileQuery, operation: FileOperation): User;
  /** The absolute path that a path of the user's means. */
  resolve(user: User, path: string): string;
  /** The caller must read the download to its end or dispose of it. */
  download(path: string): Promise<Download>;
  /** The directory and all below it as an archive; see `Archives.pack`. The caller owns the chunks. */
  pack(path: string, drop: (reason: EnvdError) => void): AsyncGenerator<Buffer>;
  /** Unpacks an archive in a directory; see `unpack`. */
  unpack(
    path: string,
    user: User,
    source: AsyncIterable<Buffer>,
    signal: AbortSignal,
  ): Promise<UnpackedArchive>;
  upload(user: User, parts: AsyncIterable<UploadPart>, options: UploadOptions): Promise<UploadedFile[]>;
  /** Throws `unauthenticated` for an unknown user. */
  compose(username: string, request: ComposeRequest, signal: AbortSignal): Promise<UploadedFile>;
}

export interface FileSettings extends Pick<EntrySource, 'metadataPrefix' | 'lanes'> {
  /** Changes of files pass it; downloads only read and do not. */
  readonly gate: WriteGate;
  /** Counts uploaded files and received bytes. */
  readonly uploads: Transfers;
}

export function createFileServices(guest: Guest, settings: FileSettings): FileServices {
  const { metadataPrefix, lanes, gate, uploads } = settings;
  const shared = createUploadResources({ lanes, gate, tally: uploads });
  const archives = new Archives(lanes, gate);
  const resolve = (user: User, path: string) => resolvePath(path, user, guest.defaultWorkdir);
  return {
    admit({ presentedToken, ...query }, operation) {
      authorizeFile(guest.accessToken, { ...query, presentedToken, operation });
      return userOf(guest, query.username);
    },
    resolve,
    download: async (path) => openDownload(path, lanes),
    pack: (path, drop) => archives.pack(path, drop),
    async unpack(path, user, source, signal) {
      const unpacked = await archives.unpack(path, user, counted(source, uploads), signal);
      uploads.count += unpacked.files;
      return { path, ...unpacked };
    },
    async upload(user, parts, { metadata: values, ...options }) {
      const metadata = { values, prefix: metadataPrefix };
      const { defaultWorkdir } = guest;
      return upload(parts, { user, defaultWorkdir, shared, metadata, ...options });
    },
    async compose(username, request, signal) {
      const user = userOf(guest, username);
      return gate.run(() => compose(request, user, guest.defaultWorkdir, lanes, signal));
    },
  };
}

async function* counted(pieces: AsyncIterable<Buffer>, uploads: Transfers): AsyncGenerator<Buffer> {
  for await (const piece of pieces) {
    uploads.bytes += piece.length;
    yield piece;
  }
}

function userOf(guest: Guest, name: string): User {
  try {
    return guest.user(name);
  } catch (error) {
    if (!(error instanceof EnvdError) || error.kind !== 'unauthenticated') throw error;
    const username = name || guest.defaultUser;
    throw new EnvdError(error.kind, `error looking up user '${username}': ${messageOf(error)}`, {
      cause: error,
    });
  }
}
