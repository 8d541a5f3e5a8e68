/**
 * The exit codes of envctl itself, with their meaning. They begin at 120, because commands of `run` seldom use such codes.
 * 124, 126 and 127 mean what they mean in timeout(1) and in shells.
 */
export const EXIT_CODES = {
  usage: [120, 'The command line is wrong.'],
  unreachable: [121, 'The daemon or the gateway cannot be reached, or does not serve now: try again.'],
  refused: [122, 'The token, the key or the user is refused (401, 403).'],
  not_found: [123, 'The file, process or sandbox does not exist.'],
  timeout: [124, 'The time limit has passed.'],
  failed: [125, 'The operation failed for another reason.'],
  not_executable: [126, 'The command cannot be executed.'],
  no_such_command: [127, 'The command does not exist.'],
} as const satisfies Readonly<Record<string, readonly [code: number, meaning: string]>>;

export type FailureReason = keyof typeof EXIT_CODES;

/** An error that is shown to the user as one line, which says what to do. */
export class Failure extends Error {
  override readonly name = 'Failure';
  readonly reason: FailureReason;

  constructor(reason: FailureReason, message: string, options?: ErrorOptions) {
    super(message, options);
    this.reason = reason;
  }

  get exitCode(): number {
    return EXIT_CODES[this.reason][0];
  }
}

/** Returns the failure for a wrong command line. */
export function usageError(message: string): Failure {
  return new Failure('usage', message);
}
