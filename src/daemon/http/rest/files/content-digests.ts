import type { IncomingHttpHeaders } from 'node:http';
import type { Transform } from 'node:stream';
import type { Download } from '../../../services/files/download.ts';

/** Passes the body of an upload through, and checks it. */
export interface BodyCheck extends Transform {
  /** Reads the rest of the body. Throws `invalid_argument` when it is not what the client has announced. */
  verify(): Promise<void>;
}

/** Digests of what is transferred, by which a client checks it. */
export interface ContentDigests {
  /** Returns what checks the body of an upload; null when its headers announce no digest. Throws `invalid_argument` for malformed ones. */
  check(headers: IncomingHttpHeaders): BodyCheck | null;
  isWanted(headers: IncomingHttpHeaders): boolean;
  /** Returns the headers that describe a whole file to a client which asks for that. Throws the reason of `signal` when it aborts. */
  describe(
    headers: IncomingHttpHeaders,
    download: Download,
    signal: AbortSignal,
  ): Promise<Readonly<Record<string, string>>>;
}
