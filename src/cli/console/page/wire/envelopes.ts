import { CallError } from './call-error.ts';

const HEADER_BYTES = 5;
const END_FLAG = 2;
const MAX_ENVELOPE = 64 * 1024 * 1024;

/** A message of a stream of Connect, and its end. */
export interface Envelope {
  readonly isEnd: boolean;
  readonly text: string;
}

/** The body of a request that opens a stream: one message in an envelope. */
export function enveloped(message: object): Uint8Array<ArrayBuffer> {
  const content = new TextEncoder().encode(JSON.stringify(message));
  const bytes = new Uint8Array(HEADER_BYTES + content.length);
  new DataView(bytes.buffer).setUint32(1, content.length);
  bytes.set(content, HEADER_BYTES);
  return bytes;
}

/** Takes a stream apart into envelopes, however its bytes arrive. */
export class EnvelopeReader {
  readonly #decoder = new TextDecoder();
  #rest = new Uint8Array(0);

  *read(piece: Uint8Array): Generator<Envelope> {
    let bytes = piece;
    if (this.#rest.length > 0) {
      bytes = new Uint8Array(this.#rest.length + piece.length);
      bytes.set(this.#rest);
      bytes.set(piece, this.#rest.length);
    }
    let at = 0;
    while (bytes.length - at >= HEADER_BYTES) {
      const length = new DataView(bytes.buffer, bytes.byteOffset + at + 1).getUint32(0);
      if (length > MAX_ENVELOPE)
        throw new CallError('internal', 'the daemon sent a message that is too long');
      const end = at + HEADER_BYTES + length;
      if (end > bytes.length) break;
      const text = this.#decoder.decode(bytes.subarray(at + HEADER_BYTES, end));
      yield { isEnd: ((bytes[at] ?? 0) & END_FLAG) !== 0, text };
      at = end;
    }
    this.#rest = bytes.slice(at);
  }
}

export function bytesOfBase64(text: string): Uint8Array {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index++) bytes[index] = binary.charCodeAt(index);
  return bytes;
}

export function base64Of(bytes: Uint8Array): string {
  let binary = '';
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary);
}
