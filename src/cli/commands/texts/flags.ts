import type { OptionSpec } from '../spec/description.ts';

/** The parts of the flags of an option, such as `-l, --long <value>`. */
export interface FlagParts {
  readonly short: string | null;
  readonly long: string;
  /** The name of the value, or null for a switch. */
  readonly value: string | null;
}

export function flagParts({ flags }: OptionSpec): FlagParts {
  const [, short = null, long = '', value = null] = /^(?:(-\w), )?(--[\w-]+)(?: <(.+)>)?$/.exec(flags) ?? [];
  return { short, long, value };
}
