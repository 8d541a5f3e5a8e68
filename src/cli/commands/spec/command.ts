import type { Call } from './call.ts';
import type { CommandDescription } from './description.ts';

export type CommandOptions = Readonly<Record<string, unknown>>;

/** A command that can be executed. */
export interface CommandSpec extends CommandDescription {
  /** Resolves with the exit code. Throws `Failure`. */
  run(call: Call, options: CommandOptions): Promise<number>;
}

/** A command whose options have the type `Options`, which its table of options must match. */
export function defineCommand<Options>(
  spec: Omit<CommandSpec, 'run'> & { run(call: Call, options: Options): Promise<number> },
): CommandSpec {
  return { ...spec, run: (call, options) => spec.run(call, options as Options) };
}
