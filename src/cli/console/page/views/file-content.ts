import { fileNameOf } from '../files/file-entry.ts';
import type { DaemonClient } from '../wire/daemon-client.ts';
import type { EntryMessage } from '../wire/messages.ts';

/** What is shown of a file. */
export type FileContent =
  | TextContent
  | { readonly kind: 'picture'; readonly url: string }
  | { readonly kind: 'binary' }
  | { readonly kind: 'problem'; readonly text: string };

/** Text, which can be edited if it is all there and its lines end in one way. */
export interface TextContent {
  readonly kind: 'text';
  readonly text: string;
  readonly isWhole: boolean;
  /** False: it is Latin-1. */
  readonly isUtf8: boolean;
  /** Of all of it, in bytes. */
  readonly size: number;
  readonly etag: string | null;
  /** What ends each line; null: not all lines end so. */
  readonly lineEnd: '\n' | '\r\n' | null;
}

/** Text is shown up to this length, and can be edited if that is all of it. */
const MAX_TEXT = 512 * 1024;
/** Tab, line feed, form feed and carriage return. */
const SPACES: ReadonlySet<number> = new Set([9, 10, 12, 13]);
const MAX_PICTURE = 16 * 1024 * 1024;

/** The pictures that are shown, by the ends of names. An SVG is shown as text, because it may have scripts. */
const PICTURES: Readonly<Record<string, string>> = {
  ...{ png: 'image/png', jpg: 'image/jpeg', jpeg: 'image/jpeg', gif: 'image/gif', webp: 'image/webp' },
  ...{ avif: 'image/avif', bmp: 'image/bmp', ico: 'image/x-icon' },
};

/** Reads as much of a file as is shown. Throws `CallError`. */
export async function readContent(daemon: DaemonClient, path: string): Promise<FileContent> {
  const { entry } = await daemon.unary<{ entry?: EntryMessage }>('filesystem.Filesystem/Stat', { path });
  const size = Number(entry?.size ?? 0);
  const name = fileNameOf(path);
  const picture = PICTURES[name.slice(name.lastIndexOf('.') + 1).toLowerCase()];
  if (picture !== undefined && size <= MAX_PICTURE) {
    const response = await daemon.get('/files', { path });
    return {
      kind: 'picture',
      url: URL.createObjectURL(new Blob([await response.arrayBuffer()], { type: picture })),
    };
  }
  const isPart = size > MAX_TEXT;
  const range = isPart ? { headers: { range: `bytes=0-${MAX_TEXT - 1}` } } : {};
  const response = await daemon.get('/files', { path }, range);
  const bytes = new Uint8Array(await response.arrayBuffer());
  const utf8 = utf8In(bytes, isPart);
  const text = utf8 ?? latin1In(bytes);
  if (text === null) return { kind: 'binary' };
  return {
    kind: 'text',
    text,
    isWhole: !isPart,
    isUtf8: utf8 !== null,
    size,
    etag: response.headers.get('etag'),
    lineEnd: lineEndIn(text),
  };
}

function lineEndIn(text: string): TextContent['lineEnd'] {
  if (!text.includes('\r')) return '\n';
  return /[^\r]\n|^\n|\r(?!\n)/.test(text) ? null : '\r\n';
}

/** The text in bytes of UTF-8; null: they are none. */
function utf8In(bytes: Uint8Array, isPart: boolean): string | null {
  if (bytes.includes(0)) return null;
  try {
    // A part may end within a character, which a stream waits for.
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes, { stream: isPart });
  } catch {
    return null;
  }
}

/** The text in bytes of Latin-1; null: they have control characters that no text has. */
function latin1In(bytes: Uint8Array): string | null {
  if (bytes.some((byte) => (byte < 0x20 && !SPACES.has(byte)) || (byte >= 0x7f && byte < 0xa0))) return null;
  return new TextDecoder('latin1').decode(bytes);
}
