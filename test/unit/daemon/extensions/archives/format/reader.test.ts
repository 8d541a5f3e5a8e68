import { expect, test } from 'vitest';
import { ByteSource } from '../../../../../../src/daemon/extensions/archives/format/byte-source.ts';
import { TarReader } from '../../../../../../src/daemon/extensions/archives/format/reader.ts';
import { memberOf, paxOf } from '../../../../../support/services/tar-archive.ts';

test('members with many records do not share a turn of the event loop', async () => {
  const records = Object.fromEntries(
    Array.from({ length: 2000 }, (_, index) => [`SCHILY.xattr.user.${index}`, 'x']),
  );
  const members = Array.from({ length: 50 }, (_, index) => memberOf({ name: `${index}` }));
  const archive = Buffer.concat([memberOf(paxOf(records, 'g')), ...members, Buffer.alloc(1024)]);
  async function* inOnePiece() {
    yield archive;
  }
  let [turns, isOver] = [0, false];
  const count = () => {
    turns++;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  const reader = new TarReader(new ByteSource(inOnePiece()));
  for (let member = await reader.next(); member; member = await reader.next())
    expect(member.attributes).toHaveLength(2000);
  isOver = true;
  expect(turns).toBeGreaterThanOrEqual(members.length);
});
