import type { Transfers } from '../../../base/tally.ts';
import type { FileServices } from './services.ts';
import type { Move } from './staged-file.ts';
import { mapContent, type UploadPart } from './upload.ts';

/** Wraps `files` to count uploaded files and received bytes in `uploads`. */
export function countUploads(files: FileServices, uploads: Transfers): FileServices {
  return {
    admit: (query, operation) => files.admit(query, operation),
    download: (user, path) => files.download(user, path),
    pack: (user, path) => files.pack(user, path),
    compose: (username, request) => files.compose(username, request),
    async unpack(user, path, source, signal) {
      const unpacked = await files.unpack(user, path, countedPieces(source, uploads), signal);
      uploads.count += unpacked.files;
      return unpacked;
    },
    async upload(user, parts, options) {
      const uploaded = await files.upload(user, counted(parts, uploads), options);
      uploads.count += uploaded.length;
      return uploaded;
    },
  };
}

async function* counted(parts: AsyncIterable<UploadPart>, uploads: Transfers): AsyncGenerator<UploadPart> {
  for await (const part of parts) yield mapContent(part, (pieces) => countedPieces(pieces, uploads));
}

async function* countedPieces<Piece extends Buffer | Move>(
  pieces: AsyncIterable<Piece>,
  uploads: Transfers,
): AsyncGenerator<Piece> {
  for await (const piece of pieces) {
    if (Buffer.isBuffer(piece)) uploads.bytes += piece.length;
    yield typeof piece === 'function' ? (countedMove(piece, uploads) as Piece) : piece;
  }
}

function countedMove(move: Move, uploads: Transfers): Move {
  return async (descriptor, position) => {
    const moved = await move(descriptor, position);
    uploads.bytes += moved;
    return moved;
  };
}
