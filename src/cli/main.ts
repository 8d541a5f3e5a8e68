import process from 'node:process';
import { packageVersion } from '../base/program/version.ts';
import type { Parsed } from './commands/parse.ts';
import { Call, type Surroundings } from './commands/spec/call.ts';
import { allCommands, commandsNamed, GROUPS } from './commands/table.ts';
import { failureOf } from './connection/failures.ts';
import { Printer } from './output/printer.ts';

/** A shell shows this exit code for a program that SIGPIPE has ended (128 and 13), because its reader has gone. */
const NO_READER = 141;

// The promise is not awaited, because the build makes a CommonJS file of this module.
void runCli({
  argv: process.argv.slice(2),
  env: process.env,
  // Node makes the stream when it is asked for, and few commands read it.
  get stdin() {
    return process.stdin;
  },
  stdout: process.stdout,
  stderr: process.stderr,
});

/** Executes the command line. Exits with its code when all output has been written. */
async function runCli(surroundings: Surroundings): Promise<void> {
  const { stdout, stderr } = surroundings;
  for (const stream of [stdout, stderr])
    stream.on('error', (error: NodeJS.ErrnoException) =>
      process.exit(error.code === 'EPIPE' ? NO_READER : 125),
    );
  const exitCode = await execute(surroundings);
  for (const stream of [stdout, stderr])
    await new Promise<void>((resolve) => stream.write('', () => resolve()));
  // The program exits explicitly, because reads or timers of the command could keep it running.
  process.exit(exitCode);
}

async function execute(surroundings: Surroundings): Promise<number> {
  const { argv, stdout, stderr } = surroundings;
  const isJson = argv.slice(0, argv.indexOf('--') >>> 0).includes('--json');
  let output = new Printer(stdout, stderr, { json: isJson });
  let call: Call | null = null;
  try {
    const version = packageVersion();
    const parsed = await parse(argv, version);
    if ('print' in parsed) {
      stdout.write(parsed.print);
      return 0;
    }
    call = new Call(surroundings, { table: allCommands, version }, parsed.options, parsed.args);
    output = call.output;
    return await parsed.command.run(call, parsed.options);
  } catch (error) {
    const reported = failureOf(error, 'the daemon');
    const failure = call?.explained(reported) ?? reported;
    output.error(failure);
    return failure.exitCode;
  } finally {
    call?.close();
  }
}

/** Parses a command line. Loads all commands only for help and for a line that is wrong. Throws a `Failure`. */
async function parse(argv: readonly string[], version: string): Promise<Parsed> {
  const [name, kind = '', word = '', dashes, ...line] = argv;
  if (name === 'complete' && dashes === '--') {
    // A shell waits for the answer to a line that it has written itself, so no library is loaded to parse that.
    const [command] = await commandsNamed([name]);
    if (command) return { command, args: [kind, word, ...line], options: {} };
  }
  const { parseCommandLine } = await import('./commands/parse.ts');
  const groups = GROUPS;
  try {
    const parsed = parseCommandLine({ commands: await commandsNamed(argv), groups, version }, argv);
    if ('command' in parsed || parsed.print === `${version}\n`) return parsed;
  } catch {
    // The error may have another text when all commands are known.
  }
  return parseCommandLine({ commands: await allCommands(), groups, version }, argv);
}
