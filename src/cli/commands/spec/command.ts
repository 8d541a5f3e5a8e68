import type { Call } from './call.ts';
import type { CommandDescription } from './description.ts';

export type CommandOptions = Readonly<Record<string, unknown>>;

/** A description of a command, and the function that executes it. */
export interface CommandSpec extends CommandDescription {
  /** Executes the command. Resolves with the exit code. Throws `Failure`. */
  run(call: Call, options: CommandOptions): Promise<number>;
}

/** Defines a command whose options have the type `Options`. The table of options must match the type. */
export function defineCommand<Options>(
  spec: Omit<CommandSpec, 'run'> & { run(call: Call, options: Options): Promise<number> },
): CommandSpec {
  return { ...spec, run: (call, options) => spec.run(call, options as Options) };
}
