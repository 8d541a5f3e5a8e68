import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { Code, ConnectError } from '@connectrpc/connect';
import { EventType } from '../../src/gen/filesystem/filesystem_pb.js';
import { MULTIPART, multipartBody, RAW } from '../support/clients/files-client.ts';
import { anyOf, check, checkEqual, hashOf } from './checks.ts';
import type { Place } from './place.ts';

const MIB = 1024 * 1024;
/** How long the events of a change may take to arrive on a machine that has no time, in milliseconds; times the pace. */
const EVENTS_MS = 120_000;

let count = 0;

const some = (most: number) => randomBytes(1 + anyOf(most));
const query = (path: string) => `/files?${new URLSearchParams({ path })}`;
const upload = (place: Place, path: string, body: Buffer<ArrayBuffer>, headers = {}) =>
  place.rest(query(path), { method: 'POST', headers: { ...RAW, ...headers }, body });

/** What is uploaded comes back: as it is, compressed, in parts, composed. */
export async function transfers(place: Place): Promise<void> {
  const begun = performance.now();
  const directory = join(place.subject.scratch, `files-${count++}`);
  const at = (name: string) => join(directory, name);
  const [large, packed, ...parts] = [some(4 * MIB), some(MIB), some(20_000), some(20_000), some(300_000)];
  const whole = Buffer.concat(parts);
  await place.surely(() => upload(place, at('large'), large));
  await place.surely(() => upload(place, at('packed'), gzipSync(packed), { 'content-encoding': 'gzip' }));
  const files = parts.map((content, index) => ({
    disposition: `name="file"; filename="${at(`part-${index}`)}"`,
    content,
  }));
  await place.surely(() =>
    place.rest('/files', { method: 'POST', headers: MULTIPART, body: multipartBody(files) }),
  );
  await compare(place, at('large'), large);
  await compare(place, at('packed'), packed);
  const from = anyOf(large.length);
  const range = { headers: { range: `bytes=${from}-` } };
  const { bytes } = await place.surely(() => place.rest(query(at('large')), range, [206]));
  checkEqual('the hash of a range', hashOf(bytes), hashOf(large.subarray(from)));
  await compose(
    place,
    parts.map((_, index) => at(`part-${index}`)),
    at('whole'),
  );
  await compare(place, at('whole'), whole);
  const { entries } = await place.surely(() => place.clients.filesystem.listDir({ path: directory }));
  const left = new Set([...entries.map(({ name }) => name), ...['large', 'packed', 'whole']]);
  // A kill may come between the publication of the whole and the removal of its sources.
  check(`these are left: ${[...left]}`, left.size === 3 || place.wasAwaySince(begun));
  await remove(place, directory);
}

async function compare(place: Place, path: string, content: Uint8Array): Promise<void> {
  const { bytes } = await place.surely(() => place.rest(query(path)));
  checkEqual(`the hash of ${path}`, hashOf(bytes), hashOf(content));
}

/** If the answer is lost, sources may be gone already. */
async function compose(place: Place, sources: readonly string[], destination: string): Promise<void> {
  const from = performance.now();
  const body = JSON.stringify({ source_paths: sources, destination });
  const headers = { 'content-type': 'application/json' };
  await place.surely(async () => {
    const request = { method: 'POST', headers, body };
    const { status } = await place.rest('/files/compose', request, [200, 404]);
    check('a source is missing', status === 200 || place.wasAwaySince(from));
  });
}

/** An overwrite that is cut leaves the old content or the new one. */
export async function overwrites(place: Place): Promise<void> {
  const path = join(place.subject.scratch, `overwritten-${count++}`);
  let old = some(2 * MIB);
  await place.surely(() => upload(place, path, old));
  for (let round = 0; round < 8; round += 1) {
    const content = some(2 * MIB);
    const answer = await place.attempt(() => upload(place, path, content));
    const { bytes } = await place.surely(() => place.rest(query(path)));
    const isNew = hashOf(bytes) === hashOf(content);
    check(`${path} is neither as it was nor as it was uploaded`, isNew || hashOf(bytes) === hashOf(old));
    check('an upload that was answered is not there', isNew || answer === undefined);
    if (isNew) old = content;
  }
  await remove(place, path);
}

const remove = (place: Place, path: string) => place.surely(() => place.clients.filesystem.remove({ path }));

/** A new directory, and how a process fills it: with files in a directory that is new, too. */
async function treeIn(place: Place) {
  const directory = join(place.subject.scratch, `watched-${count++}`);
  const names = Array.from({ length: 40 }, (_, index) => (index % 4 === 0 ? `d${index}` : `d0/f${index}`));
  const make = names.map((name) => (name.includes('/') ? `echo content >${name}` : `mkdir ${name}`));
  await place.surely(() =>
    place.clients.filesystem.makeDir({ path: directory }).catch((error: unknown) => {
      // The answer before may have been lost.
      if (ConnectError.from(error).code !== Code.AlreadyExists) throw error;
    }),
  );
  let filling = Promise.resolve();
  const fill = () => {
    filling = place.run(`cd ${directory} && ${make.join(' && ')}`);
    // It is awaited later.
    filling.catch(() => {});
  };
  return { directory, names, fill, filled: () => filling };
}

const isRescan = ({ type, name }: { type: EventType; name: string }) =>
  type === EventType.UNSPECIFIED && name === '.';

/** A polled watcher is told each CREATE once, or that it is to scan again. A kill of the daemon ends it. */
export async function polledWatches(place: Place): Promise<void> {
  const { directory, names, fill, filled } = await treeIn(place);
  const { filesystem } = place.clients;
  await place.attempt(async () => {
    const { watcherId } = await filesystem.createWatcher({ path: directory, recursive: true });
    const from = performance.now();
    fill();
    const created: string[] = [];
    try {
      while (created.length < names.length && performance.now() < from + EVENTS_MS * place.pace) {
        const answer = await place
          .attempt(() => filesystem.getWatcherEvents({ watcherId }))
          .catch((error) => {
            if (place.wasAwaySince(from)) return { events: [] };
            throw error;
          });
        if (!answer || place.wasAwaySince(from) || answer.events.some(isRescan)) return;
        created.push(
          ...answer.events.filter(({ type }) => type === EventType.CREATE).map(({ name }) => name),
        );
      }
      checkEqual('what a watcher was told', created.sort(), names.toSorted());
    } finally {
      if (!place.wasAwaySince(from)) await place.attempt(() => filesystem.removeWatcher({ watcherId }));
    }
  });
  await filled();
  await remove(place, directory);
}

/** So is a stream. */
export async function streamedWatches(place: Place): Promise<void> {
  const { directory, names, fill, filled } = await treeIn(place);
  const created: string[] = [];
  const take = ({ type, name }: { type: EventType; name: string }) => {
    if (type === EventType.CREATE) created.push(name);
  };
  const { filesystem } = place.clients;
  // Connect does not end the call of a stream that is read no further.
  const enough = new AbortController();
  const signal = AbortSignal.any([enough.signal, AbortSignal.timeout(EVENTS_MS * place.pace)]);
  const told = async () => {
    for await (const { event } of filesystem.watchDir({ path: directory, recursive: true }, { signal })) {
      if (event.case === 'start') fill();
      if (event.case === 'filesystem' && isRescan(event.value)) return;
      if (event.case === 'filesystem') take(event.value);
      if (created.length === names.length) break;
    }
    checkEqual('what a stream has told', created.sort(), names.toSorted());
  };
  const tellLate = (error: unknown) => {
    // Its time is over: what it has told so far.
    if (signal.aborted) checkEqual('what a stream has told', created.sort(), names.toSorted());
    throw error;
  };
  await place.attempt(() => told().catch(tellLate)).finally(() => enough.abort());
  await filled();
  await remove(place, directory);
}
