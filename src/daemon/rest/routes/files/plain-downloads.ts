import type { IncomingMessage, ServerResponse } from 'node:http';
import { endWith } from '../../../../base/buffers.ts';
import type { Download } from '../../../services/files/download.ts';
import type { FileServices } from '../../../services/files/services.ts';
import type { DownloadLimits } from './download-limits.ts';
import { type DownloadPlan, planDownload } from './download-plan.ts';

export interface PlainDownloadOptions {
  readonly files: FileServices;
  readonly limits: DownloadLimits;
}

/** A path and perhaps a user, as clients encode them; some mean a space by `+`. */
const QUERY = /^\/files\?path=([^&+#]+)(?:&username=([^&+#]+))?$/;
/** Headers that ask for anything but the whole file as it is. */
const DEMANDS = [
  ...['accept-encoding', 'range', 'if-range', 'want-repr-digest'],
  ...['if-match', 'if-none-match', 'if-modified-since', 'if-unmodified-since'],
];

type Plain = Pick<DownloadPlan, 'headers'> & { readonly path: string; readonly body: Buffer };

/** Serves downloads of small files that are in the page cache, as they are, without Fastify. */
export class PlainDownloads {
  readonly #options: PlainDownloadOptions;

  constructor(options: PlainDownloadOptions) {
    this.#options = options;
  }

  /**
   * Sends the file, after `begin` with its path. Returns false, without effect, when the route must serve the request, also
   * when it is to be refused.
   */
  serve(request: IncomingMessage, response: ServerResponse, begin: (path: string) => void): boolean {
    const plain = this.#prepare(request, response);
    if (!plain) return false;
    begin(plain.path);
    const own = Object.entries(plain.headers).flatMap(([name, value]) => [name, String(value)]);
    response.writeHead(200, own);
    endWith(response, plain.body);
    return true;
  }

  #prepare(request: IncomingMessage, response: ServerResponse): Plain | null {
    if (DEMANDS.some((name) => request.headers[name] !== undefined)) return null;
    try {
      const download = this.#open(request);
      const plan = download && planDownload('GET', request.headers, download);
      const body = plan && download.read(plan.pieces);
      if (!plan || !Buffer.isBuffer(body)) return null;
      this.#options.limits.hold(body.length, response);
      return { headers: plan.headers, path: download.path, body };
    } catch {
      return null;
    }
  }

  /** Null when it cannot be read at once. Throws when the request must be refused. */
  #open({ url = '', headers }: IncomingMessage): Download | null {
    const [, path, username = ''] = QUERY.exec(url) ?? [];
    if (path === undefined) return null;
    const { files } = this.#options;
    const query = {
      path: decodeURIComponent(path),
      username: decodeURIComponent(username),
      signature: undefined,
      expiration: undefined,
      presentedToken: [headers['x-access-token']].flat()[0] || undefined,
    };
    return files.cached(files.resolve(files.admit(query, 'read'), query.path));
  }
}
