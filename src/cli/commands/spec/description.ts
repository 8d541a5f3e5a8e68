/** Describes a positional argument. */
export interface ArgumentSpec {
  readonly name: string;
  readonly help: string;
  readonly isOptional?: boolean;
  readonly isVariadic?: boolean;
  /** A shell completes the argument with this. If it is absent, it completes nothing. */
  readonly completes?: Completion;
}

/** The daemon, the gateway or the file of contexts knows the names of these kinds. */
export const DYNAMIC = ['path', 'process', 'sandbox', 'context', 'signal'] as const;
export type DynamicCompletion = (typeof DYNAMIC)[number];

/** A shell completes a value with names of this kind. A `place` is a file of this machine, or a path in a sandbox behind a colon. */
export type Completion = 'file' | 'directory' | 'command' | 'place' | DynamicCompletion;

/** Describes an option of the command line. */
export interface OptionSpec {
  /** The flags as commander reads them, such as `-l, --long` or `--tag <name>`. */
  readonly flags: string;
  readonly help: string;
  /** Returns the value. Throws `InvalidArgumentError`. */
  readonly parse?: (text: string) => NonNullable<unknown>;
  readonly choices?: readonly string[];
  /** If true, the option may be given several times, and its value is an array. */
  readonly isRepeated?: boolean;
  readonly completes?: Completion;
}

/** Describes a command, for the parser, the completions and the manual. */
export interface CommandDescription {
  /** The name is one word, or two for a command of a group, such as `sandboxes list`. */
  readonly name: string;
  readonly summary: string;
  /** Another name, by which people know such a command from other programs. */
  readonly alias?: string;
  /** Command lines as people would type them, for the help and the manual. */
  readonly examples: readonly string[];
  /** Further paragraphs of the manual. */
  readonly details?: readonly string[];
  readonly arguments: readonly ArgumentSpec[];
  readonly options: readonly OptionSpec[];
  /** The exit codes that only this command has. */
  readonly exits?: readonly (readonly [code: string, meaning: string])[];
  /** The form of the output with `--json`. */
  readonly json: string;
  /** If true, options end at the first argument, because everything after it belongs to another program. */
  readonly passesThrough?: boolean;
}
