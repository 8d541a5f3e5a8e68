import { type CommandDescription, type Completion, DYNAMIC, type OptionSpec } from '../spec/description.ts';
import { GLOBAL_OPTIONS } from '../spec/global-options.ts';
import { flagParts } from './flags.ts';

export const SHELLS = ['bash', 'zsh', 'fish'];

type Table = readonly CommandDescription[];

/** Returns the script of completions for a shell, which the shell must source. Returns null for an unknown shell. */
export function completionFor(shell: string, table: Table): string | null {
  if (shell === 'bash') return forBash(table);
  if (shell === 'zsh') return forZsh(table);
  return shell === 'fish' ? forFish(table) : null;
}

/** Returns the first words of all commands. */
function firstWords(table: Table): string[] {
  return [...new Set(table.map(({ name }) => name.split(' ')[0] ?? ''))];
}

function secondWords(table: Table, group: string): string[] {
  return table.flatMap(({ name }) => (name.startsWith(`${group} `) ? [name.slice(group.length + 1)] : []));
}

function isGroup(table: Table, word: string): boolean {
  return table.some(({ name }) => name.startsWith(`${word} `));
}

function flagsOf(options: readonly OptionSpec[]): string[] {
  return options.flatMap((option) => {
    const { short, long } = flagParts(option);
    return short === null ? [long] : [short, long];
  });
}

/**
 * Returns the kind of completion for the arguments of a command. It is that of the first argument, because the others are
 * alike.
 */
function completionOf({ arguments: list, passesThrough }: CommandDescription): Completion | null {
  return passesThrough ? 'command' : (list[0]?.completes ?? null);
}

function forBash(table: Table): string {
  const cases = table.map((command) => {
    const flags = flagsOf([...command.options, ...GLOBAL_OPTIONS]).join(' ');
    return `    '${command.name}') flags='${flags}'; kind='${completionOf(command) ?? ''}' ;;`;
  });
  const groups = firstWords(table).filter((word) => isGroup(table, word));
  const valued = (wanted: Completion) =>
    flagsOf(
      [...GLOBAL_OPTIONS, ...table.flatMap(({ options }) => options)].filter(
        ({ completes }) => completes === wanted,
      ),
    );
  const valuedKinds = (['file', ...DYNAMIC] as const).filter((kind) => valued(kind).length > 0);
  const patterns = (flags: readonly string[]) => [...new Set(flags)].join('|');
  return `# Completions of envctl for bash.
_envctl() {
  local word=\${COMP_WORDS[COMP_CWORD]} whole='' line before=\${COMP_WORDS[COMP_CWORD-1]} command=\${COMP_WORDS[1]} flags='' kind='' at=2
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '${firstWords(table).join(' ')}' -- "$word"))
    return
  fi
  case $command in
${groups
  .map(
    (group) => `    ${group})
      if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W '${secondWords(table, group).join(' ')}' -- "$word")); return; fi
      command="$command \${COMP_WORDS[2]}"; at=3 ;;`,
  )
  .join('\n')}
  esac
  case $command in
${cases.join('\n')}
  esac
  case $before in
${valuedKinds.map((kind) => `    ${patterns(valued(kind))}) kind=${kind}; flags='' ;;`).join('\n')}
  esac
  if [ "\${word#-}" != "$word" ]; then
    COMPREPLY=($(compgen -W "$flags" -- "$word"))
    return
  fi
  case $kind in
    file) COMPREPLY=($(compgen -f -- "$word")) ;;
    directory) COMPREPLY=($(compgen -d -- "$word")) ;;
    command) [ "$COMP_CWORD" -gt "$at" ] || COMPREPLY=($(compgen -c -- "$word")) ;;
    ${DYNAMIC.join('|')}|place) _envctl_ask "$kind" ;;
  esac
}
# Asks for names. Bash ends a word at each colon, and replaces only what is behind the last one.
_envctl_ask() {
  whole=\${COMP_LINE:0:COMP_POINT}; whole=\${whole##*[ =]}
  [ -n "$COMP_LINE" ] || whole=$word
  case $1:$whole in place:*:*) ;; place:*) COMPREPLY=($(compgen -f -- "$whole")); return ;; esac
  while IFS= read -r line; do
    COMPREPLY+=("$(printf %q "\${line#"\${whole%"\${whole##*:}"}"}")")
  done < <(envctl complete "\${1/place/path}" "$whole" -- "\${COMP_WORDS[@]}" 2>/dev/null)
  case \${COMPREPLY[0]} in */) compopt -o nospace 2>/dev/null ;; esac
}
complete -F _envctl envctl
`;
}

/** Returns text in single quotes for a shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** Escapes colons and brackets, which have a meaning in a line of `_arguments` or `_describe`. */
function escaped(text: string): string {
  return text.replace(/[:[\]\\]/g, '\\$&');
}

function forZsh(table: Table): string {
  const describe = (words: readonly (readonly [string, string])[]) =>
    words.map(([word, summary]) => `    ${quoted(`${word}:${escaped(summary)}`)}`).join('\n');
  const summaries = firstWords(table).map(
    (word) =>
      [
        word,
        table.find(({ name }) => name === word)?.summary ?? `${secondWords(table, word).join(', ')}`,
      ] as const,
  );
  const groups = firstWords(table).filter((word) => isGroup(table, word));
  return `#compdef envctl
# Completions of envctl for zsh.
_envctl() {
  local -a words_found
  if (( CURRENT == 2 )); then
    words_found=(
${describe(summaries)}
    )
    _describe command words_found
    return
  fi
  local command=$words[2]
  case $command in
${groups
  .map(
    (group) => `    ${group})
      if (( CURRENT == 3 )); then
        words_found=(
${describe(secondWords(table, group).map((word) => [word, table.find(({ name }) => name === `${group} ${word}`)?.summary ?? ''] as const))}
        )
        _describe command words_found
        return
      fi
      command="$command $words[3]" ;;`,
  )
  .join('\n')}
  esac
  case $command in
${table.map(zshCase).join('\n')}
  esac
}
_envctl_ask() {
  local -a found=("\${(@f)$(envctl complete $1 "$PREFIX" -- $words 2>/dev/null)}")
  compadd -S '' -- \${found:#}
}
_envctl_place() { if [[ $PREFIX == *:* ]]; then _envctl_ask path; else _files; fi }
compdef _envctl envctl
`;
}

const ZSH_ACTIONS: Readonly<Record<string, string>> = {
  file: '_files',
  directory: '_files -/',
  command: '_command_names -e',
  place: '_envctl_place',
};

function zshAction(completion: Completion): string {
  return ZSH_ACTIONS[completion] ?? `{_envctl_ask ${completion}}`;
}

function zshCase(command: CommandDescription): string {
  const options = [...command.options, ...GLOBAL_OPTIONS].flatMap((option) => {
    const { short, long, value } = flagParts(option);
    const action = option.completes ? zshAction(option.completes) : ' ';
    const rest = `[${escaped(option.help)}]${value === null ? '' : `:${escaped(value)}:${action}`}`;
    const many = option.isRepeated ? '*' : '';
    return [short, long].flatMap((flag) => (flag === null ? [] : [quoted(many + flag + rest)]));
  });
  const completion = completionOf(command);
  const argument = completion === null ? [] : [quoted(`*:argument:${zshAction(completion)}`)];
  return `    ${quoted(command.name)}) _arguments ${[...options, ...argument].join(' ')} ;;`;
}

function forFish(table: Table): string {
  const words = firstWords(table).map((word) => {
    const summary = table.find(({ name }) => name === word)?.summary ?? secondWords(table, word).join(', ');
    return `complete -c envctl -n __fish_use_subcommand -a ${quoted(word)} -d ${quoted(summary)}`;
  });
  const head = ['# Completions of envctl for fish.', 'complete -c envctl -f', ...words];
  const options = GLOBAL_OPTIONS.map((option) => fishOption(option, ''));
  return `${[...head, ...table.flatMap(fishCommand), ...options].join('\n')}\n`;
}

const FISH_ACTIONS: Readonly<Record<string, string>> = {
  file: '-F',
  directory: '-F',
  command: `-a ${quoted('(__fish_complete_command)')}`,
  place: `-F ${fishAsk('path')}`,
};

function fishAsk(kind: string): string {
  return `-a ${quoted(`(envctl complete ${kind} (commandline -ct) -- (commandline -opc) 2>/dev/null)`)}`;
}

function fishAction(completion: Completion): string {
  return FISH_ACTIONS[completion] ?? fishAsk(completion);
}

function fishCommand(command: CommandDescription): string[] {
  const [first = '', second] = command.name.split(' ');
  const seen = `__fish_seen_subcommand_from ${first}`;
  const condition = second === undefined ? seen : `${seen}; and __fish_seen_subcommand_from ${second}`;
  const word =
    second === undefined
      ? []
      : [`complete -c envctl -n ${quoted(seen)} -a ${quoted(second)} -d ${quoted(command.summary)}`];
  const completion = completionOf(command);
  const argument =
    completion === null ? [] : [`complete -c envctl -n ${quoted(condition)} ${fishAction(completion)}`];
  const options = command.options.map((option) => fishOption(option, `-n ${quoted(condition)}`));
  return [...word, ...options, ...argument];
}

function fishOption(option: OptionSpec, condition: string): string {
  const { short, long, value } = flagParts(option);
  const parts = [
    'complete -c envctl',
    condition,
    short === null ? '' : `-s ${short.slice(1)}`,
    `-l ${long.slice(2)}`,
  ];
  if (value !== null) parts.push(option.completes === 'file' ? '-r -F' : '-x');
  if (option.completes && option.completes !== 'file') parts.push(fishAction(option.completes));
  if (option.choices) parts.push(`-a ${quoted(option.choices.join(' '))}`);
  return [...parts, `-d ${quoted(option.help)}`].filter((part) => part !== '').join(' ');
}
