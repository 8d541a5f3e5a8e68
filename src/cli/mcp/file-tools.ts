import { strictObject, string } from 'zod';
import type { Connection } from '../connection/connection.ts';
import { addPiece } from '../connection/http.ts';
import { Failure } from '../output/failure.ts';
import { counted } from '../output/formats.ts';
import { printable } from '../output/printable.ts';
import { entryType, kindOf, listDirectory, uploadFile } from '../transfer/remote-tree.ts';
import { answer, linesWithin } from './answer.ts';
import { bytesInput, integerInput, pathInput } from './inputs.ts';
import { LinesOfFile } from './lines-of-file.ts';
import { defineTool, type Tool } from './tool.ts';

/** A file that is edited may have this size, in bytes. */
const MAX_EDITED = 16 * 1024 * 1024;
const MOST_LINES = 1_000_000_000;
const MOST_MATCHES = 100_000;

const PATH = pathInput("a path in the sandbox, below the root or the user's home if it is not absolute");

export const readFileTool: Tool = defineTool({
  name: 'read_file',
  title: 'Read a file',
  description:
    'Answers with lines of a text file. What does not fit is left out, and the answer says where to go on.',
  input: strictObject({
    path: PATH,
    from_line: integerInput(1, MOST_LINES, 1, 'the first line, from 1 on'),
    lines: integerInput(1, MOST_LINES, 2000, 'how many lines'),
    skip_bytes: integerInput(0, 2 ** 40, 0, 'leave out so many bytes of the first line, which may be long'),
    max_bytes: bytesInput(),
  }),
  does: 'reads',
  async run({ connection, paths, input, signal }) {
    const path = await paths.resolve(connection, input.path);
    const { from_line: first, lines, skip_bytes: skip, max_bytes: most } = input;
    const read = new LinesOfFile({ first, lines, skip, most });
    for await (const piece of await download(connection, path, signal)) if (read.take(piece)) break;
    const { text, words } = read.result();
    return answer(words, text === '' ? [] : [{ name: `lines of ${printable(path)}`, text }]);
  },
});

export const writeFileTool: Tool = defineTool({
  name: 'write_file',
  title: 'Write a file',
  description:
    'Writes a text file: makes it with the directories that lead to it, or replaces its content. edit_file changes a part of a file.',
  input: strictObject({ path: PATH, content: string().describe('the whole content') }),
  does: 'writes',
  async run({ connection, paths, input }) {
    const path = await paths.resolve(connection, input.path);
    const content = Buffer.from(input.content);
    await uploadFile(connection, path, content, { size: content.length, mode: null });
    return answer(`The file has ${counted(content.length, 'byte')} now.`);
  },
});

export const editFileTool: Tool = defineTool({
  name: 'edit_file',
  title: 'Replace text in a file',
  description:
    'Replaces a text in a file by another one. The old text is taken as it is, with its blanks and line ends. Nothing is changed unless it occurs exactly as often as expected.',
  input: strictObject({
    path: PATH,
    old_text: string().min(1).describe('the text to replace, with so much around it that it is unique'),
    new_text: string(),
    expected_count: integerInput(1, MOST_MATCHES, 1, 'how often the old text occurs; all are replaced'),
  }),
  does: 'writes',
  async run({ connection, paths, input, signal }) {
    const path = await paths.resolve(connection, input.path);
    const response = await download(connection, path, signal);
    const { etag } = response.headers;
    const before = await wholeFile(response, input.path);
    // Bytes are compared, so that the rest of a file that is not UTF-8 stays as it is.
    const pieces = split(before, Buffer.from(input.old_text));
    const count = pieces.length - 1;
    if (count !== input.expected_count)
      throw new Failure(
        'failed',
        `the old text occurs ${counted(count, 'time')} in '${input.path}', not ${input.expected_count}: nothing is changed`,
      );
    const fresh = Buffer.from(input.new_text);
    const after = Buffer.concat(pieces.flatMap((piece, index) => (index === 0 ? [piece] : [fresh, piece])));
    const condition = etag === undefined ? {} : { 'if-match': etag };
    await uploadFile(connection, path, after, { size: after.length, mode: null }, condition);
    return answer(`${counted(count, 'place')} in the file changed.`);
  },
});

export const listDirectoryTool: Tool = defineTool({
  name: 'list_directory',
  title: 'List a directory',
  description:
    'Answers with the entries of a directory, one a line: kind, permissions, size in bytes, and name. find_files lists what is below.',
  input: strictObject({
    path: PATH,
    from: integerInput(1, MOST_LINES, 1, 'the first entry in the order of the names, from 1 on'),
    max_bytes: bytesInput(),
  }),
  does: 'reads',
  async run({ connection, paths, input }) {
    const entries = await listDirectory(connection, await paths.resolve(connection, input.path));
    entries.sort((one, other) => (one.name < other.name ? -1 : 1));
    const lines = entries.slice(input.from - 1).map((entry) => {
      const target = kindOf(entry) === 'link' ? ` -> ${printable(entry.symlinkTarget ?? '?')}` : '';
      const kind = kindOf(entry) === 'link' ? `link to ${entryType(entry)}` : entryType(entry);
      return `${kind}  ${entry.permissions}  ${entry.size}  ${printable(entry.name)}${target}`;
    });
    const { text, shown } = linesWithin(lines, input.max_bytes);
    const next = input.from + shown;
    const rest =
      next <= entries.length
        ? ` The answer leaves out ${entries.length - next + 1} of them: from ${next} goes on from here.`
        : '';
    return answer(
      `The directory has ${counted(entries.length, 'entry', 'entries')}.${rest}`,
      text === '' ? [] : [{ name: 'entries', text }],
    );
  },
});

function download(connection: Connection, path: string, signal: AbortSignal) {
  return connection.http.send({
    path: '/files',
    query: connection.fileQuery(path),
    headers: { 'accept-encoding': 'identity' },
    signal,
  });
}

async function wholeFile(content: AsyncIterable<Buffer>, path: string): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let length = 0;
  for await (const piece of content) {
    length += piece.length;
    if (length > MAX_EDITED)
      throw new Failure('failed', `'${path}' has more than 16 MiB: edit it by a command`);
    addPiece(pieces, piece);
  }
  return Buffer.concat(pieces);
}

function split(text: Buffer, separator: Buffer): Buffer[] {
  const pieces: Buffer[] = [];
  let from = 0;
  for (let at = text.indexOf(separator); at >= 0; at = text.indexOf(separator, from)) {
    pieces.push(text.subarray(from, at));
    from = at + separator.length;
  }
  return [...pieces, text.subarray(from)];
}
