import { Argument, Command, CommanderError, Option } from 'commander';
import { usageError } from '../output/failure.ts';
import { printableLines } from '../output/printable.ts';
import type { CommandOptions, CommandSpec } from './spec/command.ts';
import type { ArgumentSpec, OptionSpec } from './spec/description.ts';
import { GLOBAL_OPTIONS, type GlobalOptions } from './spec/global-options.ts';

/** The result of a command line: a command with its arguments, or text to print. */
export type Parsed =
  | {
      readonly command: CommandSpec;
      readonly args: readonly string[];
      readonly options: CommandOptions & GlobalOptions;
    }
  | { readonly print: string };

interface Tree {
  readonly commands: readonly CommandSpec[];
  /** The keys are names of groups of commands, and the values their summaries. */
  readonly groups: Readonly<Record<string, string>>;
  readonly version: string;
}

/** Parses a command line, without node and script. Throws a `Failure` with the reason `usage`. */
export function parseCommandLine(tree: Tree, argv: readonly string[]): Parsed {
  const found: Parsed[] = [];
  const program = programOf(tree, (parsed) => found.push(parsed));
  const printed: string[] = [];
  const complaints: string[] = [];
  let complaining = program.name();
  for (const command of [program, ...program.commands, ...program.commands.flatMap((one) => one.commands)])
    command.exitOverride().configureOutput({
      writeOut: (text) => printed.push(text),
      writeErr: (text) => {
        complaints.push(text);
        complaining = nameOf(command);
      },
    });
  try {
    program.parse([...argv], { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    // Without a command, commander writes the whole help as a complaint, and for the command `help` as output.
    if (error.code === 'commander.help') return { print: [...complaints, ...printed].join('') };
    if (error.exitCode !== 0) throw complaint(complaints, error, complaining);
  }
  return found[0] ?? { print: printed.join('') };
}

function complaint(lines: readonly string[], error: CommanderError, command: string): Error {
  // The second line asks what was meant.
  const [line = error.message, question = ''] = lines.join('').split('\n');
  const told = `${line.replace(/^error: |\.$/g, '')} ${question}`.trimEnd();
  return usageError(`${printableLines(told)}; see \`${command} --help\``);
}

/** Returns the words that call a command, such as `envctl sandboxes list`. */
function nameOf(command: Command): string {
  return command.parent ? `${nameOf(command.parent)} ${command.name()}` : command.name();
}

function programOf({ commands, groups, version }: Tree, onFound: (parsed: Parsed) => void): Command {
  const program = new Command('envctl')
    .description('Commands, terminals and files of a sandbox, by the daemon in it')
    .version(version, '-V, --version', 'print the version')
    .enablePositionalOptions()
    .allowExcessArguments(false);
  addOptions(program, GLOBAL_OPTIONS);
  const parents = new Map<string, Command>();
  for (const spec of commands) {
    const [group = '', name] = spec.name.split(' ');
    if (name === undefined) program.addCommand(commandOf(spec, group, onFound));
    else {
      const parent = parents.get(group) ?? new Command(group).description(groups[group] ?? '');
      if (!parents.has(group)) program.addCommand(parent.enablePositionalOptions());
      parents.set(group, parent);
      parent.addCommand(commandOf(spec, name, onFound));
    }
  }
  return program;
}

function commandOf(spec: CommandSpec, name: string, onFound: (parsed: Parsed) => void): Command {
  const command = new Command(name).description([spec.summary, ...(spec.details ?? [])].join('\n\n'));
  command.summary(spec.summary).allowExcessArguments(false);
  if (spec.alias !== undefined) command.alias(spec.alias);
  command.addHelpText('after', ['', 'Examples:', ...spec.examples.map((each) => `  ${each}`)].join('\n'));
  if (spec.passesThrough) command.passThroughOptions();
  for (const each of spec.arguments) command.addArgument(argumentOf(each));
  addOptions(command, spec.options);
  // A command may give an option of all commands a letter of its own.
  const own = new Set(spec.options.map(({ flags }) => longFlagOf(flags)));
  const others = GLOBAL_OPTIONS.filter(({ flags }) => !own.has(longFlagOf(flags)));
  addOptions(command, others, 'Options of every command:');
  return command.action(() => {
    onFound({ command: spec, args: command.args, options: command.optsWithGlobals() });
  });
}

function addOptions(command: Command, options: readonly OptionSpec[], group?: string): void {
  for (const spec of options) {
    const option = optionOf(spec);
    command.addOption(group === undefined ? option : option.helpGroup(group));
  }
}

function longFlagOf(flags: string): string {
  return /--[a-z-]+/.exec(flags)?.[0] ?? flags;
}

function argumentOf({ name, help, isOptional, isVariadic }: ArgumentSpec): Argument {
  const inner = isVariadic ? `${name}...` : name;
  return new Argument(isOptional ? `[${inner}]` : `<${inner}>`, help);
}

function optionOf({ flags, help, parse, choices, isRepeated }: OptionSpec): Option {
  const option = new Option(flags, help);
  if (choices) option.choices(choices);
  const read = parse ?? String;
  if (isRepeated)
    option.argParser((text: string, before: unknown) => [
      ...(Array.isArray(before) ? before : []),
      read(text),
    ]);
  else if (parse) option.argParser(parse);
  return option;
}
