import { createHash } from 'node:crypto';

/** The command that a client asked for, as List shows it. */
export interface ProcessConfig {
  readonly command: string;
  readonly args: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  readonly cwd: string | null;
}

/** The most characters of a command that are kept when it has ended: it may have megabytes. */
const SHORT_LENGTH = 1024;

/** What is kept of an ended process' command: enough to tell whether a repeated start asks for the same one. */
export function shortened(config: ProcessConfig): ProcessConfig {
  const { command, args, cwd } = config;
  const environment = Object.entries(config.environment);
  const texts = [command, ...args, ...environment.flat(), cwd ?? ''];
  if (texts.reduce((sum, text) => sum + text.length, 0) <= SHORT_LENGTH && texts.length <= SHORT_LENGTH)
    return config;
  const whole = JSON.stringify([command, args, environment.toSorted(), cwd]);
  const digest = createHash('sha256').update(whole).digest('hex');
  return { command: `sha256:${digest}`, args: [], environment: {}, cwd: null };
}
