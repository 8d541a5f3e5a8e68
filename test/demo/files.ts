import { join } from 'node:path';
import { EventType } from '../../src/gen/filesystem/filesystem_pb.js';
import type { Visitor } from './visitor.ts';

/** An upload with metadata, a download whole and in part. */
export async function carryAFile({ rest }: Visitor, directory: string): Promise<void> {
  const url = `/files?path=${join(directory, 'poem.txt')}`;
  const headers = { 'content-type': 'application/octet-stream', 'x-metadata-author': 'Ada' };
  await rest(`POST ${url}`, { headers, body: 'roses are red\nviolets are blue\n' });
  await rest(`GET ${url}`, {}, ['content-type', 'etag']);
  await rest(`GET ${url}`, { headers: { range: 'bytes=14-20' } }, ['content-range']);
}

/** Missing directories are made; the metadata moves with the file. */
export async function tidyUp({ filesystem }: Visitor, directory: string): Promise<void> {
  const destination = join(directory, 'shelf', 'poem.txt');
  await filesystem.stat({ path: join(directory, 'poem.txt') });
  await filesystem.move({ source: join(directory, 'poem.txt'), destination });
  await filesystem.listDir({ path: directory, depth: 2 });
}

/** A watch reports changes by anybody. */
export async function watchADirectory(visitor: Visitor, directory: string): Promise<void> {
  const { filesystem, rest } = visitor;
  const changes = async () => {
    const headers = { 'content-type': 'application/octet-stream' };
    await rest(`POST /files?path=${join(directory, 'new.txt')}`, { headers, body: 'news' });
    await filesystem.move({ source: join(directory, 'new.txt'), destination: join(directory, 'old.txt') });
    await filesystem.remove({ path: join(directory, 'old.txt') });
  };
  let changing: Promise<void> | undefined;
  for await (const { event } of filesystem.watchDir({ path: directory, recursive: true })) {
    if (event.case === 'start') changing = changes();
    if (event.case === 'filesystem' && event.value.type === EventType.REMOVE) break;
  }
  await changing;
}
