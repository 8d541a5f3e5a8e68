import type { ManualFlag } from './manual.ts';

/** A program as the completions of shells know it. */
export interface Completed {
  readonly name: string;
  /** Words that may come first instead of a flag. */
  readonly words: readonly string[];
  readonly flags: readonly ManualFlag[];
}

/** Values with these names are paths of files. */
const PATHS = ['path', 'file'];

/** Returns a completion for bash 4 or later, without the functions of the package bash-completion. */
export function bashCompletion({ name, words, flags }: Completed): string {
  const valued = flags.filter(({ value }) => value !== null);
  const choices = valued.filter((flag) => flag.choices.length > 0);
  const files = valued.filter(isPath);
  const others = valued.filter((flag) => !choices.includes(flag) && !files.includes(flag));
  const all = flags.flatMap((flag) => [flag.name, ...(flag.short === null ? [] : [flag.short])]);
  const names = (some: readonly ManualFlag[]) => some.map((flag) => flag.name).join(' | ');
  const cases = [
    ...choices.map((flag) => `${flag.name}) words='${flag.choices.join(' ')}' ;;`),
    `${names(files)}) files=1 ;;`,
    `${names(others)}) return ;;`,
  ];
  // bash makes the = before a value a word of its own.
  return `# Completion of ${name}(1) for bash.
_${identifier(name)}() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD-1]} words='' files=''
  COMPREPLY=()
  if [ "$cur" = = ]; then cur=''; elif [ "$prev" = = ]; then prev=\${COMP_WORDS[COMP_CWORD-2]}; fi
  case $prev in
    ${cases.join('\n    ')}
  esac
  if [ -n "$files" ]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    return
  fi
  if [ -z "$words" ]; then
    words='${all.join(' ')}'
    [ "$COMP_CWORD" != 1 ] || words="$words${words.map((word) => ` ${word}`).join('')}"
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _${identifier(name)} ${name}
`;
}

function isPath({ value }: ManualFlag): boolean {
  return value !== null && PATHS.includes(value);
}

/** Returns a completion for zsh. */
export function zshCompletion({ name, words, flags }: Completed): string {
  const specs = flags.flatMap((flag) =>
    [flag.name, ...(flag.short === null ? [] : [flag.short])].map((one) => {
      const [sign, action] = flag.value === null ? ['', ''] : ['=', `:${flag.value}:${zshAction(flag)}`];
      return quoted(`${one}${sign}[${flag.help.replaceAll(/[[\]\\:]/g, '\\$&')}]${action}`);
    }),
  );
  const first = words.length === 0 ? [] : [quoted(`1:command:(${words.join(' ')})`)];
  return `#compdef ${name}\n_arguments \\\n  ${[...specs, ...first].join(' \\\n  ')}\n`;
}

function zshAction(flag: ManualFlag): string {
  if (flag.choices.length > 0) return `(${flag.choices.join(' ')})`;
  return isPath(flag) ? '_files' : ' ';
}

/** Returns a completion for fish. */
export function fishCompletion({ name, words, flags }: Completed): string {
  const lines = flags.map((flag) => {
    const long = `-l ${flag.name.slice(2)}${flag.short === null ? '' : ` -s ${flag.short.slice(1)}`}`;
    const argument = flag.value === null ? '' : isPath(flag) ? ' -r -F' : ' -x';
    const among = flag.choices.length === 0 ? '' : ` -a ${quotedForFish(flag.choices.join(' '))}`;
    return `complete -c ${name} ${long}${argument}${among} -d ${quotedForFish(flag.help)}`;
  });
  const first = words.map((word) => `complete -c ${name} -n __fish_is_first_token -a ${word}`);
  return `${[`complete -c ${name} -f`, ...first, ...lines].join('\n')}\n`;
}

function identifier(name: string): string {
  return name.replaceAll('-', '_');
}

/** Quotes text for a POSIX shell and zsh. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** In the single quotes of fish, a backslash escapes itself and the quote. */
function quotedForFish(text: string): string {
  return `'${text.replaceAll(/['\\]/g, '\\$&')}'`;
}
