/** A member of an archive that is made by hand; names are bytes, one character each. */
export interface RawMember {
  readonly name: string;
  readonly type?: string;
  readonly link?: string;
  readonly mode?: string;
  /** The field itself; default: the size of the content in octal digits. */
  readonly size?: Buffer | string;
  readonly content?: Buffer | string;
}

/** An archive in the ustar format, with its end marker. */
export function archiveOf(...members: readonly RawMember[]): Buffer {
  return Buffer.concat([...members.map(memberOf), Buffer.alloc(1024)]);
}

/** A header with a right checksum, and the padded content. */
export function memberOf({ name, type = '0', link = '', mode = '644', ...rest }: RawMember): Buffer {
  const content = Buffer.from(rest.content ?? '');
  const header = Buffer.alloc(512);
  header.write(name, 0, 100, 'latin1');
  header.write(mode.padStart(7, '0'), 100, 'latin1');
  header.write('0000000\x000000000\0', 108, 'latin1');
  const size = rest.size ?? content.length.toString(8).padStart(11, '0');
  if (Buffer.isBuffer(size)) size.copy(header, 124);
  else header.write(size, 124, 'latin1');
  header.write('00000000000\0', 136, 'latin1');
  header.write(type, 156, 'latin1');
  header.write(link, 157, 100, 'latin1');
  header.write('ustar\x0000', 257, 'latin1');
  seal(header);
  return Buffer.concat([header, content, Buffer.alloc((512 - (content.length % 512)) % 512)]);
}

/** Writes the checksum of a header. */
export function seal(header: Buffer): void {
  header.fill(0x20, 148, 156);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
}

/** An extended header with these records. */
export function paxOf(records: Readonly<Record<string, string>>, type = 'x'): RawMember {
  const lines = Object.entries(records).map(([key, value]) => {
    const rest = ` ${key}=${value}\n`;
    let length = rest.length + 1;
    while (String(length).length + rest.length !== length) length++;
    return `${length}${rest}`;
  });
  return { name: 'pax', type, content: Buffer.from(lines.join(''), 'latin1') };
}
