import { EnvdError, messageOf } from '../../../base/errors.ts';
import { resolvePath } from '../../os/paths.ts';
import type { User } from '../../os/users.ts';
import type { Guest } from '../guest/guest.ts';
import { authorizeFile } from './authorize.ts';
import { type ComposeRequest, compose } from './compose.ts';
import { type Download, openDownload } from './download.ts';
import { KeyedLock } from './keyed-lock.ts';
import type { FileOperation } from './signature.ts';
import { type UploadContext, type UploadedFile, type UploadPart, upload } from './upload.ts';

/** Which file a caller means, and by what right. */
export interface FileQuery {
  /** As sent, empty when absent. */
  readonly path: string;
  readonly username: string;
  readonly signature: string | undefined;
  /** Unix time in seconds, as sent. */
  readonly expiration: string | undefined;
  readonly shownToken: string | undefined;
}

/** What comes with the files of an upload. */
export type UploadOptions = Pick<UploadContext, 'metadata' | 'durable' | 'verified' | 'signal'>;

/** Files in and out of the guest. All throw `unauthenticated` for an unknown user. */
export interface FileServices {
  /** The caller owns the download until it has read or disposed of it. */
  download(query: FileQuery): Promise<Download>;
  /** Reads nothing of `parts` before the caller is known to be allowed to write. */
  upload(query: FileQuery, parts: AsyncIterable<UploadPart>, options: UploadOptions): Promise<UploadedFile[]>;
  compose(username: string, request: ComposeRequest): Promise<UploadedFile>;
}

export function createFileServices(guest: Guest): FileServices {
  const overwrites = new KeyedLock();
  const callerOf = ({ shownToken, ...query }: FileQuery, operation: FileOperation): User => {
    authorizeFile(guest.accessToken, { ...query, shownToken, operation });
    return userOf(guest, query.username);
  };
  return {
    async download(query) {
      const user = callerOf(query, 'read');
      return openDownload(resolvePath(query.path, user, guest.defaultWorkdir));
    },
    async upload(query, parts, options) {
      const user = callerOf(query, 'write');
      return upload(parts, { user, defaultWorkdir: guest.defaultWorkdir, overwrites, ...options });
    },
    async compose(username, request) {
      return compose(request, userOf(guest, username), guest.defaultWorkdir);
    },
  };
}

function userOf(guest: Guest, name: string): User {
  try {
    return guest.user(name);
  } catch (error) {
    if (!(error instanceof EnvdError)) throw error;
    const looked = name || guest.defaultUser;
    throw new EnvdError(error.kind, `error looking up user '${looked}': ${messageOf(error)}`, {
      cause: error,
    });
  }
}
