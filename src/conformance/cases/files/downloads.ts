import { strict as assert } from 'node:assert';
import { createHash, randomBytes } from 'node:crypto';
import { gunzipSync } from 'node:zlib';
import { section } from '../../suite/cases.ts';
import { refusedRest, type TestedDaemon } from '../../suite/daemon.ts';
import type { Answer } from '../../suite/wire.ts';

const TEXT = '0123456789abcdefghijklmnopqrstuvwxyz';
const MIB = 1024 * 1024;

const get = (daemon: TestedDaemon, path: string, headers: Record<string, string> = {}, method = 'GET') =>
  daemon.rest(method, '/files', { query: { path }, headers });

/** A new file with `TEXT`, and its answer to a plain request. */
async function planted(daemon: TestedDaemon, name = 'test.txt'): Promise<{ path: string; plain: Answer }> {
  const path = daemon.at(name);
  await daemon.upload(path, TEXT);
  return { path, plain: await get(daemon, path) };
}

/** The status and the text of an answer. */
const told = ({ status, body }: Answer) => [status, String(body)];
const etagOf = ({ headers }: Answer) => String(headers.etag);

async function ranges(daemon: TestedDaemon): Promise<void> {
  const { path } = await planted(daemon);
  for (const [range, content, where] of [
    ['bytes=0-3', '0123', '0-3'],
    ['bytes=30-', 'uvwxyz', '30-35'],
    ['bytes=-2', 'yz', '34-35'],
    ['bytes=34-99', 'yz', '34-35'],
  ] as const) {
    const answer = await get(daemon, path, { range });
    assert.deepEqual(told(answer), [206, content], range);
    assert.equal(answer.headers['content-range'], `bytes ${where}/${TEXT.length}`);
    assert.equal(answer.headers['content-length'], String(content.length));
  }
}

export const DOWNLOADS = section('5.1', 'Downloads', {
  'a file is sent as it is, with its headers': async (daemon) => {
    const { plain } = await planted(daemon);
    assert.deepEqual(told(plain), [200, TEXT]);
    const { headers } = plain;
    assert.match(String(headers['content-type']), /^text\/plain\b/);
    assert.equal(headers['content-disposition'], 'inline; filename=test.txt');
    assert.deepEqual([headers['content-length'], headers['accept-ranges']], [String(TEXT.length), 'bytes']);
    assert.match(String(headers.etag), /^(W\/)?".+"$/);
    assert(Date.parse(String(headers['last-modified'])) > 0);
    assert.match(String(headers.vary), /accept-encoding/i);
  },
  'the content type is that of the extension, else octets': async (daemon) => {
    for (const [name, type] of [
      ['a.json', 'application/json'],
      ['a.html', 'text/html'],
      ['a.png', 'image/png'],
      ['a', 'application/octet-stream'],
      ['a.unknown-extension', 'application/octet-stream'],
    ] as const) {
      const { plain } = await planted(daemon, name);
      assert.equal(String(plain.headers['content-type']).split(';')[0], type);
    }
  },
  'a name is quoted where it must be, and encoded beyond ASCII': async (daemon) => {
    const { plain: quoted } = await planted(daemon, 'a b;c.txt');
    assert.equal(quoted.headers['content-disposition'], 'inline; filename="a b;c.txt"');
    const { plain: encoded } = await planted(daemon, 'grün.txt');
    assert.match(
      String(encoded.headers['content-disposition']),
      /^inline; .*filename\*=utf-8''gr%c3%bcn\.txt/i,
    );
  },
  'HEAD has the headers of GET and no body': async (daemon) => {
    const { path, plain } = await planted(daemon);
    const head = await get(daemon, path, {}, 'HEAD');
    assert.deepEqual(told(head), [200, '']);
    for (const name of ['content-length', 'content-type', 'etag', 'last-modified'])
      assert.equal(head.headers[name], plain.headers[name], name);
  },
  'an empty file': async (daemon) => {
    await daemon.upload(daemon.at('empty'));
    const answer = await get(daemon, daemon.at('empty'));
    assert.deepEqual([...told(answer), answer.headers['content-length']], [200, '', '0']);
  },
  'all bytes of a large file': async (daemon) => {
    const content = randomBytes(5 * MIB + 7);
    await daemon.upload(daemon.at('large'), content);
    const digest = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
    assert.equal(digest(await daemon.download(daemon.at('large'))), digest(content));
  },
  'a range: from, to, both, and beyond the end': ranges,
  'several ranges are parts of multipart/byteranges': async (daemon) => {
    const { path } = await planted(daemon);
    const { status, headers, body } = await get(daemon, path, { range: 'bytes=0-1,34-35' });
    assert.equal(status, 206);
    const [, boundary] =
      /^multipart\/byteranges; ?boundary="?([^"]+)"?$/.exec(String(headers['content-type'])) ?? [];
    const parts = String(body).split(`--${boundary}`);
    assert.equal(parts.length, 4);
    assert.match(String(parts[1]), /^content-range: bytes 0-1\/36\r\n[\s\S]*^\r\n01\r\n$/im);
    assert.match(String(parts[2]), /^content-range: bytes 34-35\/36\r\n[\s\S]*^\r\nyz\r\n$/im);
  },
  'no range within the file is 416 that tells the length': async (daemon) => {
    const { path } = await planted(daemon);
    const answer = await get(daemon, path, { range: 'bytes=36-' });
    assert.deepEqual([answer.status, answer.headers['content-range']], [416, 'bytes */36']);
  },
  'a range in other units, or of none, is not looked at': async (daemon) => {
    const { path } = await planted(daemon);
    for (const range of ['lines=1-2', 'bytes=x'])
      assert.deepEqual(told(await get(daemon, path, { range })), [200, TEXT], range);
  },
  'If-Range: the range when it is still that file, else all of it': async (daemon) => {
    const { path, plain } = await planted(daemon);
    const range = 'bytes=0-1';
    // RFC 9110, 13.1.5: a weak validator never matches, nor does a date of the last second.
    const strong = !etagOf(plain).startsWith('W/');
    const same = await get(daemon, path, { range, 'if-range': etagOf(plain) });
    assert.deepEqual(told(same), strong ? [206, '01'] : [200, TEXT]);
    assert.deepEqual(told(await get(daemon, path, { range, 'if-range': '"other"' })), [200, TEXT]);
    const early = 'Mon, 01 Jan 1990 00:00:00 GMT';
    assert.deepEqual(told(await get(daemon, path, { range, 'if-range': early })), [200, TEXT]);
  },
  'If-None-Match and If-Modified-Since: 304 without a body': async (daemon) => {
    const { path, plain } = await planted(daemon);
    const since = String(plain.headers['last-modified']);
    assert.deepEqual(told(await get(daemon, path, { 'if-none-match': etagOf(plain) })), [304, '']);
    assert.deepEqual(told(await get(daemon, path, { 'if-none-match': `"other", ${etagOf(plain)}` })), [
      304,
      '',
    ]);
    assert.deepEqual(told(await get(daemon, path, { 'if-modified-since': since })), [304, '']);
    assert.deepEqual(told(await get(daemon, path, { 'if-none-match': '"other"' })), [200, TEXT]);
    const both = { 'if-none-match': '"other"', 'if-modified-since': since };
    assert.deepEqual(told(await get(daemon, path, both)), [200, TEXT]);
  },
  'the ETag changes with the file': async (daemon) => {
    const { path, plain } = await planted(daemon);
    await daemon.upload(path, `${TEXT.slice(1)}!`);
    const after = await get(daemon, path, { 'if-none-match': etagOf(plain) });
    assert.equal(after.status, 200);
    assert.notEqual(etagOf(after), etagOf(plain));
  },
  'gzip when the client prefers it, and it pays': async (daemon) => {
    const text = TEXT.repeat(1000);
    const path = daemon.at('text.txt');
    await daemon.upload(path, text);
    for (const accept of [
      'gzip',
      'gzip, deflate',
      'identity;q=0.5, gzip',
      'gzip;q=0.2, identity;q=0.1',
      '*',
    ]) {
      const { status, headers, body } = await get(daemon, path, { 'accept-encoding': accept });
      const coding = headers['content-encoding'];
      assert.equal(status, 200, accept);
      assert(coding === 'gzip' || accept === '*', `'${accept}' is answered in ${coding}`);
      assert.equal(String(coding === 'gzip' ? gunzipSync(body) : body), text);
      assert.match(String(headers.vary), /accept-encoding/i);
    }
  },
  'identity for what gzip does not shrink, unless it is refused': async (daemon) => {
    const path = daemon.at('noise');
    const noise = randomBytes(MIB);
    await daemon.upload(path, noise);
    const plain = await get(daemon, path, { 'accept-encoding': 'gzip, deflate' });
    assert.deepEqual([plain.status, plain.headers['content-length']], [200, String(MIB)]);
    assert.equal(plain.headers['content-encoding'], undefined);
    assert(noise.equals(plain.body));
    const coded = await get(daemon, path, { 'accept-encoding': 'gzip, identity;q=0' });
    assert.equal(coded.headers['content-encoding'], 'gzip');
    assert(noise.equals(gunzipSync(coded.body)));
  },
  'identity when the client prefers that': async (daemon) => {
    const { path } = await planted(daemon);
    for (const accept of ['identity', 'gzip;q=0', 'gzip;q=0.1, identity;q=0.5', 'deflate', '']) {
      const answer = await get(daemon, path, { 'accept-encoding': accept });
      assert.deepEqual(told(answer), [200, TEXT], accept);
      assert.equal(answer.headers['content-encoding'], undefined);
    }
  },
  'identity for ranges and conditions': async (daemon) => {
    const { path } = await planted(daemon);
    const gzip = { 'accept-encoding': 'gzip' };
    assert.deepEqual(told(await get(daemon, path, { ...gzip, range: 'bytes=0-1' })), [206, '01']);
    assert.deepEqual(told(await get(daemon, path, { ...gzip, 'if-none-match': '"other"' })), [200, TEXT]);
  },
  'nothing acceptable is 406': async (daemon) => {
    const { path } = await planted(daemon);
    const { status } = await get(daemon, path, { 'accept-encoding': 'gzip;q=0, identity;q=0' });
    assert.equal(status, 406);
  },
  'a link is followed': async (daemon) => {
    await planted(daemon);
    await daemon.shell(`cd '${daemon.directory}' && ln -s test.txt link`);
    assert.equal(String(await daemon.download(daemon.at('link'))), TEXT);
  },
  'a directory is 400, nothing there 404': async (daemon) => {
    const path = await daemon.makeDir();
    refusedRest(await get(daemon, path), 400, `path '${path}' is a directory`);
    refusedRest(await get(daemon, `${path}/none`), 404, `path '${path}/none' does not exist`);
  },
  'a file of the kernel, which has no length, is sent whole': async (daemon) => {
    const version = await daemon.shell('cat /proc/version');
    assert.equal(String(await daemon.download('/proc/version')).trimEnd(), version);
  },
});
