import type { Transfers } from '../../base/tally.ts';
import type { FileServices } from '../files/services.ts';
import type { Move } from '../files/staged-file.ts';
import type { UploadPart } from '../files/upload.ts';

/** The same, with the files that were uploaded counted, and the bytes of all that was received for them. */
export function countUploads(files: FileServices, uploads: Transfers): FileServices {
  return {
    download: (query) => files.download(query),
    compose: (username, request) => files.compose(username, request),
    async upload(query, parts, options) {
      const uploaded = await files.upload(query, counted(parts, uploads), options);
      uploads.count += uploaded.length;
      return uploaded;
    },
  };
}

async function* counted(parts: AsyncIterable<UploadPart>, uploads: Transfers): AsyncGenerator<UploadPart> {
  for await (const part of parts) {
    const direct = () => {
      const pieces = part.direct();
      return pieces && countedPieces(pieces, uploads);
    };
    yield { ...part, content: countedContent(part.content, uploads), direct };
  }
}

async function* countedContent(content: AsyncIterable<Buffer>, uploads: Transfers): AsyncGenerator<Buffer> {
  for await (const piece of content) {
    uploads.bytes += piece.length;
    yield piece;
  }
}

async function* countedPieces(
  pieces: AsyncIterable<Buffer | Move>,
  uploads: Transfers,
): AsyncGenerator<Buffer | Move> {
  for await (const piece of pieces) {
    if (typeof piece !== 'function') {
      uploads.bytes += piece.length;
      yield piece;
      continue;
    }
    yield async (descriptor, position) => {
      const moved = await piece(descriptor, position);
      uploads.bytes += moved;
      return moved;
    };
  }
}
