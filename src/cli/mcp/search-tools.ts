import { array, boolean, type output as Output, strictObject, string, type ZodObject } from 'zod';
import type { FindResponse_FoundEvent } from '../../gen/filesystem/filesystem_pb.js';
import { isNotOffered } from '../connection/failures.ts';
import { Failure } from '../output/failure.ts';
import { counted } from '../output/formats.ts';
import { printable } from '../output/printable.ts';
import { answer, type ToolAnswer } from './answer.ts';
import { bytesInput, integerInput, pathInput } from './inputs.ts';
import { defineTool, type Tool, type ToolCall } from './tool.ts';

const MOST_RESULTS = 10_000;

const SEARCHED = {
  path: pathInput('the directory or file to search; default: the root, or the home of the user').default('.'),
  names: array(string().min(1).max(1000))
    .max(100)
    .default([])
    .describe('globs as in .gitignore: *.ts at any depth, /top, !not.this; default: all files'),
  gitignore: boolean().default(true).describe('leave out .git and what .gitignore files say'),
  max_results: integerInput(1, MOST_RESULTS, 1000, 'how many results'),
  max_bytes: bytesInput(),
};

export const findFilesTool: Tool = defineTool({
  name: 'find_files',
  title: 'Find files',
  description: 'Answers with the paths below a directory whose names match globs. Links are not followed.',
  input: strictObject(SEARCHED),
  does: 'reads',
  run: (call) => search(call, {}, ({ path }) => [printable(path)]),
});

export const searchFilesTool: Tool = defineTool({
  name: 'search_files',
  title: 'Search in files',
  description:
    'Answers with the lines of files that match a pattern, each as PATH:LINE:TEXT. Binary files and links are left out.',
  input: strictObject({
    ...SEARCHED,
    pattern: string().min(1).max(10_000).describe('a regular expression of JavaScript'),
    fixed: boolean().default(false).describe('the pattern is a text, not a regular expression'),
    ignore_case: boolean().default(false),
    context: integerInput(0, 20, 0, 'lines before and after each one'),
  }),
  does: 'reads',
  run: (call) => {
    const { pattern: content, fixed, ignore_case: ignoreCase, context } = call.input;
    return search(call, { content, regex: !fixed, ignoreCase, context }, linesOf);
  },
});

function linesOf({ path, line, text, before, after }: FindResponse_FoundEvent): string[] {
  const beside = (texts: readonly string[], from: number) =>
    texts.map((one, index) => `${printable(path)}-${from + index}-${printable(one)}`);
  const found = `${printable(path)}:${line}:${printable(text)}`;
  return [...beside(before, line - before.length), found, ...beside(after, line + 1)];
}

type Searched = Output<ZodObject<typeof SEARCHED>>;

interface Pattern {
  readonly content?: string;
  readonly regex?: boolean;
  readonly ignoreCase?: boolean;
  readonly context?: number;
}

async function search(
  { connection, paths, input, signal }: ToolCall<Searched>,
  pattern: Pattern,
  show: (found: FindResponse_FoundEvent) => string[],
): Promise<ToolAnswer> {
  const path = await paths.resolve(connection, input.path);
  const { names: name, gitignore, max_results: maxResults } = input;
  const lines: string[] = [];
  let length = 0;
  try {
    const request = { path, name, gitignore, maxResults, ...pattern };
    for await (const { event } of connection.files.find(request, { signal })) {
      if (event.case === 'found') {
        const more = show(event.value);
        length += Buffer.byteLength(more.join('\n')) + 1;
        if (length > input.max_bytes)
          return quoted(lines, 'There are more results: narrow the search, or raise max_bytes.');
        lines.push(...more);
      }
      if (event.case !== 'end') continue;
      const { results, truncated, unreadable } = event.value;
      const words = [
        `${counted(results, 'result')}.`,
        ...(truncated ? ['There are more: narrow the search, or raise max_results.'] : []),
        ...(unreadable > 0
          ? [`${counted(unreadable, 'file or directory', 'files or directories')} could not be read.`]
          : []),
      ].join(' ');
      return quoted(lines, words);
    }
  } catch (error) {
    const failure = await connection.failure(error);
    if (!isNotOffered(failure)) throw failure;
    throw new Failure('failed', 'this daemon does not offer a search: use find or grep by a command');
  }
  throw new Failure('failed', 'the search broke off');
}

function quoted(lines: readonly string[], words: string): ToolAnswer {
  return answer(words, lines.length === 0 ? [] : [{ name: 'results', text: lines.join('\n') }]);
}
