import { hash, type X509Certificate } from 'node:crypto';

/*
 * X509_NAME_hash(3), by which OpenSSL finds certificates in a directory: the first four bytes, little-endian, of the
 * SHA-1 of the subject in canonical form (X509_NAME_cmp(3)): texts in UTF-8 and lower case, blanks stripped and merged.
 */

interface Element {
  readonly tag: number;
  readonly content: Buffer;
  /** With tag and length. */
  readonly whole: Buffer;
}

const SET = 0x31;
const VERSION = 0xa0;
const UTF8 = 12;
/** How the bytes of the string types are read: UTF8String, PrintableString, T61String, IA5String, VisibleString. */
const ENCODINGS: Readonly<Record<number, BufferEncoding>> = {
  [UTF8]: 'utf8',
  19: 'latin1',
  20: 'latin1',
  22: 'latin1',
  26: 'latin1',
};
const BMP = 30;
const UNIVERSAL = 28;

/** As `openssl x509 -hash` prints it. */
export function subjectHash({ raw }: X509Certificate): string {
  const [certificate] = elements(raw);
  const [signed] = elements(certificate?.content ?? Buffer.alloc(0));
  const members = elements(signed?.content ?? Buffer.alloc(0));
  // Version (optional), serial number, algorithm, issuer, validity, subject.
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

/** Null for what is no text. */
function textOf({ tag, content }: Element): string | null {
  const encoding = ENCODINGS[tag];
  if (encoding) return content.toString(encoding);
  const size = tag === BMP ? 2 : tag === UNIVERSAL ? 4 : 0;
  if (size === 0) return null;
  const points: number[] = [];
  for (let at = 0; at + size <= content.length; at += size) points.push(content.readUIntBE(at, size));
  return String.fromCodePoint(...points);
}

/** The elements in DER, of a certificate that OpenSSL has parsed already. */
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
