import { type Program, type Setting, variableOf } from '../../src/base/program/settings.ts';

/** A flag as a manual page and a completion of a shell show it. */
export interface ManualFlag {
  /** Such as `--port`. */
  readonly name: string;
  /** Such as `-h`; null: the flag has no short form. */
  readonly short: string | null;
  /** The name of its value, such as `number`; null: it is a switch. */
  readonly value: string | null;
  readonly help: string;
  /** The heading that the help lists it under. */
  readonly group: string;
  /** The environment variable that sets it; null: there is none. */
  readonly variable: string | null;
  readonly defaultText: string | null;
  readonly choices: readonly string[];
}

/** What a page says that the table of settings does not. Each text is one paragraph. */
export interface Page {
  readonly description: readonly string[];
  readonly commands: readonly (readonly [words: string, help: string])[];
  readonly exitStatus: readonly (readonly [code: string, meaning: string])[];
  readonly files: readonly (readonly [path: string, meaning: string])[];
  readonly seeAlso: readonly string[];
}

/** Returns all flags of a program, in the order of its help. */
export function flagsOf(program: Program): readonly ManualFlag[] {
  const [, versionHelp] = program.version;
  const own: readonly Setting[] = [
    { flags: '-V, --version', help: versionHelp },
    ...(program.switches ?? []),
    { flags: '-h, --help', help: 'print the help' },
  ];
  return [
    ...own.map((flag) => describe(flag, null)),
    ...program.settings.map((flag) => describe(flag, variableOf(program, flag.flags))),
  ];
}

function describe(
  { flags, help, group, choices = [], defaultValue, defaultText }: Setting,
  variable: string | null,
): ManualFlag {
  const [, short = null, name = '', value = null] = /^(?:(-\w), )?(--[\w-]+)(?: <(.+)>)?$/.exec(flags) ?? [];
  const isShown = defaultText !== undefined || ['string', 'number'].includes(typeof defaultValue);
  return {
    ...{ name, short, value, help, variable, choices },
    group: group?.replace(/:$/, '') ?? 'Options',
    defaultText: isShown ? (defaultText ?? String(defaultValue)) : null,
  };
}

/** Returns the manual page of a program, in the macros of man(7). */
export function manualPage(program: Program, version: string, page: Page): string {
  const { name, description } = program;
  const flags = flagsOf(program);
  const groups = [...new Set(flags.map(({ group }) => group))];
  const commands = page.commands.map(([words]) => `.br\n.B ${escaped(`${name} ${words}`)}`);
  return lines(
    `.TH ${name.toUpperCase()} 1 "" "${name} ${version}" "User Commands"`,
    '.SH NAME',
    `${escaped(name)} \\- ${escaped(uncapitalized(description).replace(/\.$/, ''))}`,
    '.SH SYNOPSIS',
    `.B ${escaped(name)}`,
    '.RI [ option ...]',
    ...commands,
    '.SH DESCRIPTION',
    ...paragraphs(page.description),
    ...(page.commands.length === 0 ? [] : ['.SH COMMANDS']),
    ...page.commands.flatMap(([words, help]) => item(`.B ${escaped(words)}`, sentence(help))),
    '.SH OPTIONS',
    ...groups.flatMap((group) => [
      ...(group === 'Options' ? [] : [`.SS ${escaped(group)}`]),
      ...flags.filter((flag) => flag.group === group).flatMap(optionItem),
    ]),
    '.SH "EXIT STATUS"',
    ...page.exitStatus.flatMap(([code, meaning]) => item(`.B ${code}`, meaning)),
    '.SH FILES',
    ...page.files.flatMap(([path, meaning]) => item(`.I ${escaped(path)}`, meaning)),
    '.SH "SEE ALSO"',
    escaped(page.seeAlso.join(', ')),
  );
}

/** Returns the page of the file with the variables of a program. */
export function variablesPage(program: Program, version: string, file: string): string {
  const name = `${program.name}.env`;
  const variables = flagsOf(program).filter(({ variable }) => variable !== null);
  return lines(
    `.TH ${name.toUpperCase()} 5 "" "${program.name} ${version}" "File Formats"`,
    '.SH NAME',
    `${escaped(name)} \\- settings of ${escaped(program.name)}(1)`,
    '.SH SYNOPSIS',
    `.I ${escaped(file)}`,
    '.SH DESCRIPTION',
    ...paragraphs([
      `The unit of ${program.name}(1) reads this file before each start, if it exists. Each line sets a variable, as in VARIABLE=value; systemd.exec(5) describes the form as EnvironmentFile=.`,
      'A flag of the command line overrides its variable. A variable that is empty counts as unset. A switch is on unless its variable is 0 or false.',
    ]),
    '.SH VARIABLES',
    ...variables.flatMap(({ variable, name: flag, value, ...flagged }) =>
      item(
        `.BR ${escaped(variable ?? '')} =\\fI${escaped(value ?? '1')}\\fR`,
        `${sentence(flagged.help)}${details(flagged)} Flag: ${flag}.`,
      ),
    ),
    '.SH FILES',
    ...item(`.I ${escaped(file)}`, 'It belongs to root and has the mode 0600 if it contains secrets.'),
    '.SH "SEE ALSO"',
    escaped(`${program.name}(1), systemd.exec(5)`),
  );
}

function optionItem(flag: ManualFlag): string[] {
  const { name, short, value, help, variable } = flag;
  const shown =
    short === null ? `\\fB${escaped(name)}\\fR` : `\\fB${escaped(short)}\\fR, \\fB${escaped(name)}\\fR`;
  const withValue = value === null ? shown : `${shown}=\\fI${escaped(value)}\\fR`;
  const set = variable === null ? '' : ` Variable: ${variable}.`;
  return item(withValue, `${sentence(help)}${details(flag)}${set}`);
}

function details({ choices, defaultText }: Pick<ManualFlag, 'choices' | 'defaultText'>): string {
  const among = choices.length === 0 ? '' : ` One of: ${choices.join(', ')}.`;
  return defaultText === null ? among : `${among} Default: ${defaultText}.`;
}

function item(head: string, text: string): string[] {
  return ['.TP', head, escaped(text)];
}

function paragraphs(texts: readonly string[]): string[] {
  return texts.flatMap((text, index) => [...(index === 0 ? [] : ['.PP']), escaped(text)]);
}

/** Makes a help text a sentence. A first word that is a literal, such as `whsec_`, stays as it is. */
function sentence(help: string): string {
  const text = help.replace(/^[a-z]+(?=[ ,;:])/, (word) => word.charAt(0).toUpperCase() + word.slice(1));
  return `${text}.`;
}

function uncapitalized(text: string): string {
  return `${text.charAt(0).toLowerCase()}${text.slice(1)}`;
}

/** Escapes text for roff: hyphens stay what they are when they are copied, and no line is a request. */
function escaped(text: string): string {
  return text.replaceAll('\\', '\\e').replaceAll('-', '\\-').replace(/^[.']/, '\\&$&');
}

function lines(...all: readonly string[]): string {
  return `${all.join('\n')}\n`;
}
