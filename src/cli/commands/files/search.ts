import { parseCount } from '../../../base/program/settings.ts';
import { FileType, type FindResponse_FoundEvent } from '../../../gen/filesystem/filesystem_pb.js';
import type { Connection } from '../../connection/connection.ts';
import { counted } from '../../output/formats.ts';
import { remotePath } from '../../transfer/place.ts';
import type { Call } from '../spec/call.ts';
import { defineCommand } from '../spec/command.ts';
import type { OptionSpec } from '../spec/description.ts';
import { PATH_ARGUMENT } from './ls.ts';

interface SearchOptions {
  readonly name?: readonly string[];
  readonly gitignore?: boolean;
  readonly max?: number;
}

interface PatternOptions extends SearchOptions {
  readonly fixed?: boolean;
  readonly ignoreCase?: boolean;
}

const NAME_OPTIONS: readonly OptionSpec[] = [
  {
    flags: '-n, --name <glob>',
    help: 'only names like this, as in .gitignore: *.js, /top, !not.this; may be given several times',
    isRepeated: true,
  },
  { flags: '--gitignore', help: 'leave out .git and what .gitignore files say' },
];
const PATTERN_OPTIONS: readonly OptionSpec[] = [
  { flags: '-F, --fixed', help: 'the pattern is a text, not a regular expression of JavaScript' },
  { flags: '-i, --ignore-case', help: 'upper and lower case are the same' },
];
const MAX_OPTION: OptionSpec = {
  flags: '--max <number>',
  help: 'the most results; default: 10000',
  parse: parseCount,
};
const PATTERN = { name: 'pattern', help: 'a regular expression of JavaScript' };
const SEARCHED = { ...PATH_ARGUMENT, isOptional: true };
/** grep(1)'s exit code when nothing was found. */
const NOTHING_FOUND = 1;

const TYPES: Readonly<Partial<Record<FileType, string>>> = {
  [FileType.FILE]: 'file',
  [FileType.DIRECTORY]: 'directory',
  [FileType.SYMLINK]: 'link',
};

export const findCommand = defineCommand<SearchOptions>({
  name: 'find',
  summary: 'Find files by their names',
  examples: ["envctl find :src --name '*.ts'"],
  arguments: [SEARCHED],
  options: [...NAME_OPTIONS, MAX_OPTION],
  json: 'one line per entry: {"path","type":"file"|"directory"|"link"|"other","size"}',
  async run(call, options) {
    const show = ({ path, type, size }: FindResponse_FoundEvent) =>
      call.output.result({ path, type: TYPES[type] ?? 'other', size: Number(size) }, () =>
        call.output.line(path),
      );
    await search(call, { ...searchedBy(call.arguments[0], options), maxResults: options.max ?? 0 }, show);
    return 0;
  },
});

export const grepCommand = defineCommand<PatternOptions & { readonly lines?: number }>({
  name: 'grep',
  summary: 'Find lines in files',
  examples: ["envctl grep 'TODO|FIXME' :src"],
  arguments: [PATTERN, SEARCHED],
  options: [
    ...PATTERN_OPTIONS,
    { flags: '-C, --lines <number>', help: 'lines before and after each, at most 20', parse: parseCount },
    ...[...NAME_OPTIONS, MAX_OPTION],
  ],
  exits: [[String(NOTHING_FOUND), 'No line was found.']],
  json: 'one line per line: {"path","line","column","text","before","after"}',
  async run(call, options) {
    const { lines: context = 0, max: maxResults = 0 } = options;
    const request = { ...searchedBy(call.arguments[1], options), ...patternBy(call, options) };
    const show = async ({ path, line, column, text, before, after }: FindResponse_FoundEvent) =>
      call.output.result({ path, line, column, text, before, after }, async () => {
        const beside = async (texts: readonly string[], from: number) => {
          for (const [index, one] of texts.entries())
            await call.output.line({ style: 'dim', text: `${path}-${from + index}-${one}` });
        };
        await beside(before, line - before.length);
        await call.output.line({ style: 'cyan', text: path }, `:${line}:${text}`);
        await beside(after, line + 1);
      });
    const results = await search(call, { ...request, context, maxResults }, show);
    return results > 0 ? 0 : NOTHING_FOUND;
  },
});

interface ReplaceOptions extends Omit<PatternOptions, 'max'> {
  readonly dryRun?: boolean;
  readonly expect?: number;
}

export const replaceCommand = defineCommand<ReplaceOptions>({
  name: 'replace',
  summary: 'Replace text in files',
  examples: ['envctl replace --dry-run roses violets :poems'],
  details: ['All files are read first: with --expect, another number of matches changes nothing.'],
  arguments: [
    PATTERN,
    { name: 'replacement', help: '$1, $<name> and $& stand for what has matched, unless with --fixed' },
    PATH_ARGUMENT,
  ],
  options: [
    ...PATTERN_OPTIONS,
    { flags: '--dry-run', help: 'change nothing, and print the changes as a unified diff' },
    { flags: '--expect <number>', help: 'the number of matches there must be', parse: parseCount },
    ...NAME_OPTIONS,
  ],
  json: '{"files":[{"path","count","diff"}],"count","skipped","unreadable"}',
  async run(call, options) {
    const connection = await call.connection();
    const { dryRun = false, expect: expectedCount } = options;
    const request = {
      ...searchedBy(call.argument(2), options),
      ...patternBy(call, options),
      ...{ replacement: call.argument(1), dryRun },
      ...(expectedCount !== undefined && { expectedCount }),
    };
    const answer = await connection.call((one) => connection.files.replace(request, one));
    const { count, skipped, unreadable } = answer;
    const files = answer.files.map(({ path, count: matches, diff }) => ({ path, count: matches, diff }));
    await call.output.result({ files, count, skipped, unreadable }, async () => {
      for (const file of files)
        if (dryRun) await call.output.text(file.diff);
        else await call.output.line(file.path);
    });
    call.output.note({ style: 'dim', text: `[${counted(count, 'match', 'matches')}]` });
    if (unreadable > 0) call.output.warn(`${unreadable} could not be read`);
    return 0;
  },
});

type FindInit = Parameters<Connection['files']['find']>[0];

function searchedBy(path: string | undefined, { name = [], gitignore = false }: SearchOptions) {
  return { path: remotePath(path ?? '.'), name: [...name], gitignore };
}

function patternBy(call: Call, { fixed = false, ignoreCase = false }: PatternOptions) {
  return { content: call.argument(0), regex: !fixed, ignoreCase };
}

/** Shows each result when it comes. Returns how many there were. Throws `Failure`. */
async function search(
  call: Call,
  request: FindInit,
  show: (found: FindResponse_FoundEvent) => Promise<void>,
): Promise<number> {
  const connection = await call.connection();
  try {
    for await (const { event } of connection.files.find(request)) {
      if (event.case === 'found') await show(event.value);
      if (event.case !== 'end') continue;
      const { results, truncated, unreadable } = event.value;
      if (truncated) call.output.warn(`there are more than ${results} results: --max allows more`);
      if (unreadable > 0) call.output.warn(`${unreadable} could not be read`);
      return results;
    }
    return 0;
  } catch (error) {
    throw await connection.failure(error);
  }
}
