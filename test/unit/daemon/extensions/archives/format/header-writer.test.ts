import { expect, test } from 'vitest';
import { BlockWriter } from '../../../../../../src/daemon/extensions/archives/format/block-writer.ts';
import { writeHeader } from '../../../../../../src/daemon/extensions/archives/format/header-writer.ts';
import { bytePath } from '../../../../../../src/daemon/linux/paths/byte-path.ts';

/** The header of a file with this name, in characters of one byte each. */
function headerOf(name: Buffer): string {
  const out = new BlockWriter();
  const numbers = { mode: 0o644, uid: 0, gid: 0, size: 0, seconds: 0, nanoseconds: 0, device: null };
  writeHeader(out, { type: '0', name: bytePath(name), link: bytePath(Buffer.alloc(0)), ...numbers });
  return out.takeRest().toString('latin1');
}

test('a long name is said to be no text when it is none, and only then', () => {
  const text = headerOf(Buffer.from('ä'.repeat(80)));
  expect(text).toContain(` path=${Buffer.from('ä'.repeat(80)).toString('latin1')}\n`);
  expect(text).not.toContain('hdrcharset');
  expect(headerOf(Buffer.alloc(160, 0xff))).toContain(' hdrcharset=BINARY\n');
});
