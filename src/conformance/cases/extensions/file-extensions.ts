import { strict as assert } from 'node:assert';
import { Code } from '@connectrpc/connect';
import { section } from '../../suite/cases.ts';
import { refused, type TestedDaemon } from '../../suite/daemon.ts';
import { offered } from '../../suite/offered.ts';

type FindRequest = Parameters<TestedDaemon['filesystem']['find']>[0];

/** What is found, by paths below the directory of the case, with lines. */
async function found(daemon: TestedDaemon, request: FindRequest): Promise<string[]> {
  const results: string[] = [];
  let isComplete = false;
  for await (const { event } of daemon.filesystem.find({ path: daemon.directory, ...request })) {
    isComplete = event.case === 'end';
    if (event.case !== 'found') continue;
    const { path, line } = event.value;
    results.push(path.slice(daemon.directory.length + 1) + (line > 0 ? `:${line}` : ''));
  }
  assert(isComplete, 'the end event is the last');
  return results;
}

async function plant(daemon: TestedDaemon): Promise<void> {
  await daemon.upload(daemon.at('a.txt'), 'one\ntwo\n');
  await daemon.upload(daemon.at('b', 'c.txt'), 'two\nthree\n');
  await daemon.upload(daemon.at('b', 'd.bin'), 'two\0');
  await daemon.upload(daemon.at('b', '.gitignore'), 'c.*\n');
}

export const FILE_EXTENSIONS = section('+', 'Extensions for files (docs/extensions.md)', {
  'Find: names by globs': offered('search', async (daemon) => {
    await plant(daemon);
    assert.deepEqual(await found(daemon, { name: ['*.txt'] }), ['a.txt', 'b/c.txt']);
    assert.deepEqual(await found(daemon, { name: ['b/**', '!*.bin'] }), ['b/.gitignore', 'b/c.txt']);
  }),
  'Find: lines with a text or an expression, in files that are text': offered('search', async (daemon) => {
    await plant(daemon);
    assert.deepEqual(await found(daemon, { content: 'two' }), ['a.txt:2', 'b/c.txt:1']);
    assert.deepEqual(await found(daemon, { content: '^o.e$', regex: true }), ['a.txt:1']);
    assert.deepEqual(await found(daemon, { content: '^T\\w+e$', regex: true, ignoreCase: true }), [
      'b/c.txt:2',
    ]);
    await refused(found(daemon, { content: '(', regex: true }), Code.InvalidArgument);
    await refused(found(daemon, { path: daemon.at('none') }), Code.NotFound);
  }),
  'Find: .gitignore on request': offered('search', async (daemon) => {
    await plant(daemon);
    assert.deepEqual(await found(daemon, { content: 'two', gitignore: true }), ['a.txt:2']);
  }),
  'Replace: all or nothing by the count, and a dry run': offered('search', async (daemon) => {
    await plant(daemon);
    const request = { path: daemon.directory, content: 'two', replacement: '2' };
    await refused(daemon.filesystem.replace({ ...request, expectedCount: 1 }), Code.FailedPrecondition);
    const { files } = await daemon.filesystem.replace({ ...request, dryRun: true });
    assert.match(files[0]?.diff ?? '', /^-two\n\+2$/m);
    assert.equal(String(await daemon.download(daemon.at('a.txt'))), 'one\ntwo\n');
    const { count } = await daemon.filesystem.replace({ ...request, expectedCount: 2 });
    assert.equal(count, 2);
    assert.equal(String(await daemon.download(daemon.at('a.txt'))), 'one\n2\n');
    assert.equal(String(await daemon.download(daemon.at('b', 'c.txt'))), '2\nthree\n');
  }),
  'SetAttributes: mode and time; touch': offered('setAttributes', async (daemon) => {
    const path = daemon.at('file');
    await daemon.upload(path, 'content');
    const modifiedTime = { seconds: 1_000_000_000n };
    const { entry } = await daemon.filesystem.setAttributes({ path, mode: '0640', modifiedTime });
    assert.deepEqual([entry?.mode, entry?.modifiedTime?.seconds], [0o640, 1_000_000_000n]);
    await daemon.filesystem.setAttributes({ path: daemon.at('new'), touch: true });
    assert.equal((await daemon.stat(daemon.at('new'))).size, 0n);
    await refused(daemon.filesystem.setAttributes({ path: daemon.at('none') }), Code.NotFound);
  }),
  'Link, and Copy of a tree': offered('copy', async (daemon) => {
    await plant(daemon);
    await daemon.filesystem.link({ target: 'c.txt', path: daemon.at('b', 'link') });
    await daemon.filesystem.copy({ source: daemon.at('b'), destination: daemon.at('copy') });
    assert.equal(String(await daemon.download(daemon.at('copy', 'link'))), 'two\nthree\n');
    assert.equal((await daemon.stat(daemon.at('copy', 'link'))).symlinkTarget, daemon.at('copy', 'c.txt'));
  }),
  'a directory as a zip archive': offered('zip', async (daemon) => {
    await plant(daemon);
    const query = { path: daemon.directory, format: 'zip' };
    const { status, headers, body } = await daemon.rest('GET', '/files', { query });
    assert.deepEqual([status, headers['content-type']], [200, 'application/zip']);
    assert.equal(body.subarray(0, 4).toString('latin1'), 'PK\x03\x04');
  }),
});
