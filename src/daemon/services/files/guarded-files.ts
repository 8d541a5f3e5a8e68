import type { WriteGate } from '../freeze/write-gate.ts';
import type { FileServices } from './services.ts';
import { mapContent, type UploadPart } from './upload.ts';

/** Wraps `files` so that changes pass the gate; downloads only read and do not. */
export function guardFiles(files: FileServices, gate: WriteGate): FileServices {
  return {
    admit: (query, operation) => files.admit(query, operation),
    download: (user, path) => files.download(user, path),
    pack: (user, path) => files.pack(user, path),
    unpack: (user, path, source, signal) =>
      gate.run(() => files.unpack(user, path, gate.outside(source), signal)),
    upload: (user, parts, options) =>
      gate.run(() => files.upload(user, gate.outside(withContentOutside(parts, gate)), options)),
    compose: (username, request) => gate.run(() => files.compose(username, request)),
  };
}

async function* withContentOutside(
  parts: AsyncIterable<UploadPart>,
  gate: WriteGate,
): AsyncGenerator<UploadPart> {
  for await (const part of parts) yield mapContent(part, (pieces) => gate.outside(pieces));
}
