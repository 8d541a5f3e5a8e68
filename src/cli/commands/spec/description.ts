/** A positional argument. */
export interface ArgumentSpec {
  readonly name: string;
  readonly help: string;
  readonly isOptional?: boolean;
  readonly isVariadic?: boolean;
  /** What a shell completes; default: nothing. */
  readonly completes?: Completion;
}

/** What a shell offers for a value. */
export type Completion = 'file' | 'context' | 'command' | 'directory';

/** An option of the command line. */
export interface OptionSpec {
  /** `-l, --long`, `--tag <name>`. */
  readonly flags: string;
  readonly help: string;
  /** Throws `InvalidArgumentError`. */
  readonly parse?: (text: string) => NonNullable<unknown>;
  readonly choices?: readonly string[];
  /** May be given several times; the value is an array. */
  readonly isRepeated?: boolean;
  readonly completes?: Completion;
}

/** What the parser, the completions and the manual are made from. */
export interface CommandDescription {
  /** One word, or two for a command of a group: `sandboxes list`. */
  readonly name: string;
  readonly summary: string;
  /** Paragraphs of the manual. */
  readonly details?: readonly string[];
  readonly arguments: readonly ArgumentSpec[];
  readonly options: readonly OptionSpec[];
  /** Exit codes besides those that every command has. */
  readonly exits?: readonly (readonly [code: string, meaning: string])[];
  /** The shape of what `--json` prints. */
  readonly json: string;
  /** Options end at the first argument: what follows belongs to another program. */
  readonly passesThrough?: boolean;
}
