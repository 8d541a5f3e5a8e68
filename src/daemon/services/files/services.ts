import { EnvdError, messageOf } from '../../../base/errors.ts';
import { resolvePath } from '../../os/paths.ts';
import type { User } from '../../os/users.ts';
import type { Guest } from '../guest/guest.ts';
import { authorizeFile } from './authorize.ts';
import { type ComposeRequest, compose } from './compose.ts';
import { type Download, openDownload } from './download.ts';
import type { Metadata } from './metadata.ts';
import type { FileOperation } from './signature.ts';
import { type UploadContext, type UploadedFile, type UploadPart, upload, uploadsInCommon } from './upload.ts';

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
export type UploadOptions = Pick<UploadContext, 'durable' | 'verified' | 'signal'> & {
  readonly metadata: Metadata;
};

/** Files in and out of the guest. */
export interface FileServices {
  /**
   * The user that a caller acts as. Throws `unauthenticated` for one who shows neither the token nor a signature, and for
   * an unknown user.
   */
  admit(query: FileQuery, operation: FileOperation): User;
  /** The caller owns the download until it has read or disposed of it. */
  download(user: User, path: string): Promise<Download>;
  upload(user: User, parts: AsyncIterable<UploadPart>, options: UploadOptions): Promise<UploadedFile[]>;
  /** Throws `unauthenticated` for an unknown user. */
  compose(username: string, request: ComposeRequest): Promise<UploadedFile>;
}

/** `metadataPrefix`: of the attributes that carry metadata, like `user.svc.`. */
export function createFileServices(guest: Guest, metadataPrefix: string): FileServices {
  const common = uploadsInCommon();
  return {
    admit({ shownToken, ...query }, operation) {
      authorizeFile(guest.accessToken, { ...query, shownToken, operation });
      return userOf(guest, query.username);
    },
    async download(user, path) {
      return openDownload(resolvePath(path, user, guest.defaultWorkdir));
    },
    async upload(user, parts, { metadata: values, ...options }) {
      const metadata = { values, prefix: metadataPrefix };
      const { defaultWorkdir } = guest;
      return upload(parts, { user, defaultWorkdir, common, metadata, ...options });
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
