import type { Connection } from '../../connection/connection.ts';
import { askState } from '../../connection/daemon-state.ts';
import { Failure } from '../../output/failure.ts';
import type { OptionSpec } from '../spec/description.ts';
import { parseWaiting } from '../spec/parsers.ts';
import type { StartCall } from './start.ts';

export interface KeepOptions {
  /** In milliseconds. */
  readonly keep?: number;
}

export const KEEP_OPTION: OptionSpec = {
  flags: '--keep <time>',
  help: 'keep the last output and the exit code for `logs` and `wait` until this time after the end, such as 2h',
  parse: parseWaiting,
};

/** Returns the member of a start for this option. Throws `Failure` when the daemon keeps no output, because it may ignore it. */
export async function chosenKeep(
  connection: Connection,
  { keep }: KeepOptions,
): Promise<Pick<StartCall, 'keepOutput'>> {
  if (keep === undefined) return {};
  const { abilities } = await askState(connection);
  const { available = false, reason = null } = abilities.keepOutput ?? {};
  if (available) return { keepOutput: { seconds: BigInt(Math.ceil(keep / 1000)) } };
  throw new Failure(
    'failed',
    `${connection.target.name} keeps no output${reason === null ? '' : `: ${reason}`}`,
  );
}
