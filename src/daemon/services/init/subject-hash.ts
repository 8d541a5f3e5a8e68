import { hash, type X509Certificate } from 'node:crypto';

interface Element {
  readonly tag: number;
  readonly content: Buffer;
  /** The element with its tag and length. */
  readonly whole: Buffer;
}

const SET = 0x31;
const VERSION = 0xa0;
const UTF8 = 12;
/** The encodings of UTF8String, PrintableString, T61String, IA5String and VisibleString, by their tags. */
const ENCODINGS: Readonly<Record<number, BufferEncoding>> = {
  [UTF8]: 'utf8',
  19: 'latin1',
  20: 'latin1',
  22: 'latin1',
  26: 'latin1',
};
const BMP = 30;
const UNIVERSAL = 28;

/**
 * Returns the hash by which OpenSSL finds a certificate in a directory, as `openssl x509 -hash` prints it: the first four
 * bytes, little-endian, of the SHA-1 of the subject in canonical form. That has all texts in UTF-8 and lower case, without
 * blanks at the ends, and with single blanks. Source: X509_NAME_hash(3), X509_NAME_cmp(3).
 */
export function subjectHash({ raw }: X509Certificate): string {
  const [certificate] = elements(raw);
  const [signed] = elements(certificate?.content ?? Buffer.alloc(0));
  const members = elements(signed?.content ?? Buffer.alloc(0));
  // The members are version (optional), serial number, algorithm, issuer, validity and subject.
  const subject = members[members[0]?.tag === VERSION ? 5 : 4];
  const names = elements(subject?.content ?? Buffer.alloc(0)).map(canonicalSet);
  const digest = hash('sha1', Buffer.concat(names), 'buffer');
  return digest.readUInt32LE(0).toString(16).padStart(8, '0');
}

function canonicalSet({ content }: Element): Buffer {
  const attributes = elements(content).map((attribute) => {
    const [type, value] = elements(attribute.content);
    return encode(attribute.tag, Buffer.concat([type?.whole ?? Buffer.alloc(0), canonicalValue(value)]));
  });
  // DER sorts the members of a set.
  return encode(SET, Buffer.concat(attributes.sort(Buffer.compare)));
}

function canonicalValue(value: Element | undefined): Buffer {
  if (!value) return Buffer.alloc(0);
  const text = textOf(value);
  if (text === null) return value.whole;
  const merged = text.replaceAll(/^[ \t-\r]+|[ \t-\r]+$/g, '').replaceAll(/[ \t-\r]+/g, ' ');
  return encode(UTF8, Buffer.from(merged.replaceAll(/[A-Z]+/g, (letters) => letters.toLowerCase())));
}

function textOf({ tag, content }: Element): string | null {
  const encoding = ENCODINGS[tag];
  if (encoding) return content.toString(encoding);
  const size = tag === BMP ? 2 : tag === UNIVERSAL ? 4 : 0;
  if (size === 0) return null;
  const points: number[] = [];
  for (let at = 0; at + size <= content.length; at += size) points.push(content.readUIntBE(at, size));
  return String.fromCodePoint(...points);
}

/** Splits DER into its elements. The lengths are not checked, because OpenSSL has parsed the certificate already. */
function elements(bytes: Buffer): Element[] {
  const found: Element[] = [];
  for (let at = 0; at + 2 <= bytes.length; ) {
    const short = bytes.readUInt8(at + 1);
    const more = short < 0x80 ? 0 : short & 0x7f;
    const length = more === 0 ? short : bytes.readUIntBE(at + 2, more);
    const begin = at + 2 + more;
    const end = begin + length;
    found.push({
      tag: bytes.readUInt8(at),
      content: bytes.subarray(begin, end),
      whole: bytes.subarray(at, end),
    });
    at = end;
  }
  return found;
}

function encode(tag: number, content: Buffer): Buffer {
  const { length } = content;
  const size =
    length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}
