import { strict as assert } from 'node:assert';
import { given, section } from '../../suite/cases.ts';
import { JSON_BODY, jsonOf, RAW, refusedRest, type TestedDaemon } from '../../suite/daemon.ts';
import { NotRun } from '../../suite/not-run.ts';

const PREFIX_BYTES = Buffer.byteLength('user.svc.');
const MOST_BYTES = 4096;
const MOST_KEY_BYTES = 255 - PREFIX_BYTES;

/** Uploads with these headers; returns what Stat tells then. */
async function stored(
  daemon: TestedDaemon,
  headers: Record<string, string | string[]>,
): Promise<Record<string, string>> {
  const path = daemon.at('file');
  const answer = await daemon.upload(path, 'x', headers);
  const { metadata } = await daemon.stat(path);
  assert.deepEqual(answer.metadata ?? {}, metadata);
  return metadata;
}

const refusedUpload = async (daemon: TestedDaemon, headers: Record<string, string>) => {
  const call = { query: { path: daemon.at('file') }, headers: { ...RAW, ...headers }, body: 'x' };
  refusedRest(await daemon.rest('POST', '/files', call), 400);
  assert.deepEqual(await daemon.names(await daemon.makeDir()), []);
};

export const METADATA = section('5.3', 'Metadata', {
  'headers of an upload are told by its answer and by Stat, with keys in lower case': async (daemon) => {
    const headers = { 'X-Metadata-Author': 'Ada L.', 'x-metadata-a-b_c': ' x y ' };
    assert.deepEqual(await stored(daemon, headers), { author: 'Ada L.', 'a-b_c': 'x y' });
  },
  'they are of every file of the upload': async (daemon) => {
    const part = (name: string) =>
      `--b\r\nContent-Disposition: form-data; name="file"; filename="${daemon.at(name)}"\r\n\r\nx\r\n`;
    const headers = { 'content-type': 'multipart/form-data; boundary=b', 'x-metadata-k': 'v' };
    const call = { headers, body: `${part('a')}${part('b')}--b--\r\n` };
    const files = jsonOf<{ metadata: object }[]>(await daemon.rest('POST', '/files', call), 200);
    assert.deepEqual(
      files.map(({ metadata }) => metadata),
      [{ k: 'v' }, { k: 'v' }],
    );
  },
  'ListDir and Move tell them too': async (daemon) => {
    await stored(daemon, { 'x-metadata-k': 'v' });
    const { entries } = await daemon.filesystem.listDir({ path: daemon.directory });
    assert.deepEqual(entries[0]?.metadata, { k: 'v' });
    const move = { source: daemon.at('file'), destination: daemon.at('moved') };
    assert.deepEqual((await daemon.filesystem.move(move)).entry?.metadata, { k: 'v' });
  },
  'an upload replaces them: keys that are not sent are removed': async (daemon) => {
    await stored(daemon, { 'x-metadata-one': '1', 'x-metadata-two': '2' });
    assert.deepEqual(await stored(daemon, { 'x-metadata-two': '3' }), { two: '3' });
    assert.deepEqual(await stored(daemon, {}), {});
  },
  'the first value of a header counts': async (daemon) => {
    assert.deepEqual(await stored(daemon, { 'x-metadata-k': ['first', 'second'] }), { k: 'first' });
  },
  'a header with an empty key is ignored': async (daemon) => {
    assert.deepEqual(await stored(daemon, { 'x-metadata-': 'x', 'x-metadata-k': 'v' }), { k: 'v' });
  },
  'the longest key, and the most in sum': async (daemon) => {
    const key = 'k'.repeat(MOST_KEY_BYTES);
    const value = 'v'.repeat(1000);
    assert.deepEqual(await stored(daemon, { [`x-metadata-${key}`]: value }), { [key]: value });
  },
  'a longer key is 400': async (daemon) =>
    refusedUpload(daemon, { [`x-metadata-${'k'.repeat(MOST_KEY_BYTES + 1)}`]: 'v' }),
  'more in sum, the prefix counted for each key, is 400': async (daemon) => {
    const [value, rest] = ['v'.repeat(2000), MOST_BYTES - 2 * (PREFIX_BYTES + 1) - 2000];
    await refusedUpload(daemon, { 'x-metadata-a': value, 'x-metadata-b': 'v'.repeat(rest + 1) });
  },
  'a value that is no printable ASCII is 400': async (daemon) => {
    await refusedUpload(daemon, { 'x-metadata-k': 'grün' });
    await refusedUpload(daemon, { 'x-metadata-k': 'a\tb' });
  },
  'attributes of others are not told': async (daemon) => {
    const path = daemon.at('file');
    await daemon.upload(path, 'x', { 'x-metadata-k': 'v' });
    const set = `setfattr -n user.other -v x '${path}'`;
    const able = await daemon.shell(`command -v setfattr >/dev/null && ${set} && echo yes || echo no`);
    if (able !== 'yes') throw new NotRun('the guest has no setfattr');
    assert.deepEqual((await daemon.stat(path)).metadata, { k: 'v' });
  },
});

/** Files named by their content. */
async function sources(daemon: TestedDaemon, ...names: readonly string[]): Promise<string[]> {
  for (const name of names) await daemon.upload(daemon.at(name), name);
  return names.map((name) => daemon.at(name));
}

const compose = (daemon: TestedDaemon, body: unknown) =>
  daemon.rest('POST', '/files/compose', { headers: JSON_BODY, body: JSON.stringify(body) });

export const COMPOSE = section('5.4', 'Composing', {
  'sources are joined in order, and are gone then': async (daemon) => {
    const source_paths = await sources(daemon, 'two', 'one', 'three');
    const destination = daemon.at('a', 'all');
    const entry = jsonOf(await compose(daemon, { source_paths, destination }), 200);
    assert.deepEqual(entry, { path: destination, name: 'all', type: 'file' });
    assert.equal(String(await daemon.download(destination)), 'twoonethree');
    assert.deepEqual(await daemon.names(), ['a']);
  },
  'one source, and an empty one': async (daemon) => {
    const [empty = ''] = [daemon.at('empty')];
    await daemon.upload(empty);
    jsonOf(await compose(daemon, { source_paths: [empty], destination: daemon.at('all') }), 200);
    assert.equal(String(await daemon.download(daemon.at('all'))), '');
  },
  'many MiB, with all bytes': async (daemon) => {
    await daemon.upload(daemon.at('a'), Buffer.alloc(3_000_001, 'a'));
    await daemon.upload(daemon.at('b'), Buffer.alloc(2_000_003, 'b'));
    const paths = [daemon.at('a'), daemon.at('b')];
    jsonOf(await compose(daemon, { source_paths: paths, destination: daemon.at('all') }), 200);
    const wanted = Buffer.concat([Buffer.alloc(3_000_001, 'a'), Buffer.alloc(2_000_003, 'b')]);
    assert(wanted.equals(await daemon.download(daemon.at('all'))));
  },
  'a destination that is there is replaced': async (daemon) => {
    const source_paths = await sources(daemon, 'one', 'two');
    await daemon.upload(daemon.at('all'), 'before');
    jsonOf(await compose(daemon, { source_paths, destination: daemon.at('all') }), 200);
    assert.equal(String(await daemon.download(daemon.at('all'))), 'onetwo');
  },
  'the user is that of the body': given('another user')(async (daemon) => {
    const { name } = daemon.other;
    const body = { destination: daemon.at('all'), username: name };
    for (const each of ['one', 'two']) await daemon.upload(daemon.at(each), each, {}, { username: name });
    const source_paths = [daemon.at('one'), daemon.at('two')];
    jsonOf(await compose(daemon, { ...body, source_paths }), 200);
    assert.equal((await daemon.stat(daemon.at('all'))).owner, name);
  }),
  'no sources, no destination, a source that is the destination: 400': async (daemon) => {
    const [one = '', two = ''] = await sources(daemon, 'one', 'two');
    refusedRest(await compose(daemon, { source_paths: [], destination: daemon.at('all') }), 400);
    refusedRest(await compose(daemon, { source_paths: [one] }), 400);
    refusedRest(await compose(daemon, { source_paths: [one], destination: '' }), 400);
    refusedRest(await compose(daemon, { source_paths: [one, two], destination: two }), 400);
    assert.deepEqual(await daemon.names(), ['one', 'two']);
  },
  'a source that is no file is 400, one that is missing 404; all others stay': async (daemon) => {
    const [one = ''] = await sources(daemon, 'one');
    const path = await daemon.makeDir('d');
    const destination = daemon.at('all');
    refusedRest(await compose(daemon, { source_paths: [one, path], destination }), 400);
    refusedRest(await compose(daemon, { source_paths: [one, daemon.at('none')], destination }), 404);
    assert.deepEqual(await daemon.names(), ['d', 'one']);
  },
  'a body that is no JSON is 400': async (daemon) => {
    refusedRest(
      await daemon.rest('POST', '/files/compose', { headers: JSON_BODY, body: '{"source_paths":' }),
      400,
    );
  },
});
