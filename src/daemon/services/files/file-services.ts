import { EnvdError, messageOf } from '../../../base/errors.ts';
import type { Transfers } from '../../../base/tally.ts';
import { resolvePath } from '../../linux/paths/paths.ts';
import type { User } from '../../linux/system/users.ts';
import type { Guest } from '../guest/guest.ts';
import type { WriteGate } from '../pause/write-gate.ts';
import { authorizeFile } from './authorize.ts';
import { type Download, openDownload } from './download.ts';
import type { EntrySource } from './entries/entry.ts';
import type { MetadataValues } from './entries/metadata.ts';
import type { FileOperation, FileQuery } from './signature.ts';
import { type ComposeRequest, composeFile } from './uploads/compose.ts';
import { UploadResources } from './uploads/context.ts';
import { type UploadContext, type UploadedFile, type UploadPart, upload } from './uploads/upload.ts';

export type UploadOptions = Pick<UploadContext, 'durable' | 'verified' | 'signal' | 'change'> & {
  readonly metadata: MetadataValues;
};

export interface FileSettings extends Pick<EntrySource, 'metadataPrefix' | 'lanes'> {
  /** Changes of files pass this gate. Downloads do not, because they only read. */
  readonly gate: WriteGate;
  /** Counts uploaded files and received bytes. */
  readonly uploads: Transfers;
}

/** Serves downloads, uploads and compositions of files. */
export class FileServices {
  readonly #guest: Guest;
  readonly #settings: FileSettings;
  readonly #shared: UploadResources;

  constructor(guest: Guest, settings: FileSettings) {
    const { lanes, gate, uploads } = settings;
    this.#guest = guest;
    this.#settings = settings;
    this.#shared = new UploadResources(lanes, gate, uploads);
  }

  /** Returns the user of a request. Throws `unauthenticated` if its token, signature or user is not valid. */
  admit(query: FileQuery, operation: FileOperation): User {
    authorizeFile(this.#guest, query, operation);
    return this.#userOf(query.username);
  }

  /** Returns the absolute path that a path of the user's means. */
  resolve(user: User, path: string): string {
    return resolvePath(path, user, this.#guest.defaultWorkdir);
  }

  /** Opens a download, of which the caller must dispose. See `openDownload`. */
  download(path: string): Promise<Download> {
    return openDownload(path, this.#settings.lanes);
  }

  /** Receives and commits files; see `upload`. */
  async upload(
    user: User,
    parts: AsyncIterable<UploadPart>,
    { metadata: values, ...options }: UploadOptions,
  ): Promise<UploadedFile[]> {
    const metadata = { values, prefix: this.#settings.metadataPrefix };
    const { defaultWorkdir } = this.#guest;
    return upload(parts, { user, defaultWorkdir, shared: this.#shared, metadata, ...options });
  }

  /** Concatenates files; see `composeFile`. Throws `unauthenticated` for an unknown user. */
  async compose(username: string, request: ComposeRequest, signal: AbortSignal): Promise<UploadedFile> {
    const user = this.#userOf(username);
    const { gate, lanes } = this.#settings;
    return gate.run(() => composeFile(request, user, this.#guest.defaultWorkdir, lanes, signal));
  }

  #userOf(name: string): User {
    try {
      return this.#guest.user(name);
    } catch (error) {
      if (!(error instanceof EnvdError) || error.kind !== 'unauthenticated') throw error;
      const message = `error looking up user '${name || this.#guest.defaultUser}': ${messageOf(error)}`;
      throw new EnvdError(error.kind, message, { cause: error });
    }
  }
}
