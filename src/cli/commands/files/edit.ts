import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import type { Connection } from '../../connection/connection.ts';
import { failureOf } from '../../connection/failures.ts';
import { addPiece } from '../../connection/http.ts';
import { Failure } from '../../output/failure.ts';
import { baseName, remotePath } from '../../transfer/place.ts';
import { uploadFile } from '../../transfer/remote-tree.ts';
import type { Call } from '../spec/call.ts';
import { defineCommand } from '../spec/command.ts';
import { PATH_ARGUMENT } from './ls.ts';

const MAX_BYTES = 64 * 1024 * 1024;
const NOT_FOUND = 404;

/** A file as it was when it was read. */
interface Version {
  readonly content: Buffer;
  /** It is null if there is no file, or if the daemon sends no ETag. */
  readonly etag: string | null;
  readonly exists: boolean;
}

export const editCommand = defineCommand<object>({
  name: 'edit',
  summary: 'Edit a file with $VISUAL or $EDITOR',
  examples: ['envctl edit :.bashrc'],
  details: [
    'If the file has been changed by somebody else meanwhile, it is left as it is, and your version is kept on this machine.',
  ],
  arguments: [PATH_ARGUMENT],
  options: [],
  json: '{"path","changed"}',
  async run(call) {
    const connection = await call.connection();
    const path = remotePath(call.argument(0));
    const before = await read(connection, path);
    const directory = await mkdtemp(join(tmpdir(), 'envctl-edit-'));
    // The name keeps its ending, because editors recognize the language by it.
    const file = join(directory, baseName(path).replace(/[^\w.-]/g, '_') || 'file');
    await writeFile(file, before.content, { mode: 0o600 }).catch(async (error: unknown) => {
      await rm(directory, { recursive: true, force: true });
      throw error;
    });
    const changed = await editAndWrite(call, connection, path, before, file).catch((error: unknown) => {
      const { reason, message } = failureOf(error, connection.target.name);
      throw new Failure(reason, `${message}; your version is kept as ${file}`);
    });
    await rm(directory, { recursive: true, force: true });
    await call.output.result({ path, changed }, async () =>
      call.output.note(changed ? 'written' : 'not changed'),
    );
    return 0;
  },
});

async function read(connection: Connection, path: string): Promise<Version> {
  const response = await connection.http.send({
    path: '/files',
    query: connection.fileQuery(path),
    headers: { 'accept-encoding': 'identity' },
    allow: [NOT_FOUND],
  });
  const pieces: Buffer[] = [];
  let length = 0;
  for await (const piece of response) {
    length += piece.length;
    if (length > MAX_BYTES) throw new Failure('failed', `'${path}' is too large to edit: more than 64 MiB`);
    addPiece(pieces, piece);
  }
  if (response.statusCode === NOT_FOUND) return { content: Buffer.alloc(0), etag: null, exists: false };
  return { content: Buffer.concat(pieces), etag: response.headers.etag ?? null, exists: true };
}

/** Returns whether the file was changed. Throws `Failure` when the change was not written. */
async function editAndWrite(
  call: Call,
  connection: Connection,
  path: string,
  before: Version,
  file: string,
): Promise<boolean> {
  await edit(call, file);
  const content = await readFile(file);
  if (content.equals(before.content) && (before.exists || content.length === 0)) return false;
  await write(connection, path, content, before);
  return true;
}

async function edit(call: Call, file: string): Promise<void> {
  const { env } = call.surroundings;
  const editor = env.VISUAL || env.EDITOR || 'vi';
  // The variable may have arguments, as it may for git. ^C reaches every program of the terminal, but it belongs to the editor.
  const line = `trap : INT; ${editor} "$@"`;
  // Before the editor runs: the user may be quicker than this process.
  process.on('SIGINT', ignore);
  const child = spawn('/bin/sh', ['-c', line, editor, file], { stdio: 'inherit', env });
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('exit', resolve).once('error', reject);
  }).finally(() => process.off('SIGINT', ignore));
  if (code !== 0) throw new Failure('failed', 'the editor has failed');
}

function ignore(): void {}

async function write(
  connection: Connection,
  path: string,
  content: Buffer,
  { etag, exists, content: before }: Version,
): Promise<void> {
  // The file is read again, because some daemons ignore the conditions of an upload.
  const now = await read(connection, path);
  if (now.exists !== exists || !now.content.equals(before))
    throw new Failure('failed', `'${path}' was changed meanwhile`);
  const condition = exists ? etag !== null && { 'if-match': etag } : { 'if-none-match': '*' };
  const size = content.length;
  await uploadFile(connection, path, content, { size, mode: null }, condition || {});
}
