import { setTimeout as delay } from 'node:timers/promises';
import { parseCount } from '../../../base/program/settings.ts';
import type { HttpClient } from '../../connection/http.ts';
import { Failure, usageError } from '../../output/failure.ts';
import { formatSeconds } from '../../output/formats.ts';
import type { Call } from '../spec/call.ts';
import { defineCommand } from '../spec/command.ts';
import { parseWaiting } from '../spec/parsers.ts';
import { type SandboxChange, SandboxChanges } from './sandbox-changes.ts';
import { listSandboxes, type SandboxLine } from './sandbox-lines.ts';

interface WatchSandboxesOptions {
  readonly interval?: number;
  readonly count?: number;
}

const DEFAULT_INTERVAL_MS = 2000;
const LEAST_INTERVAL_MS = 100;
const STYLES = { appear: 'green', pause: 'yellow', resume: 'green', time: 'cyan', end: 'dim' } as const;

export const watchSandboxesCommand = defineCommand<WatchSandboxesOptions>({
  name: 'sandboxes watch',
  summary: 'Print a line when a sandbox of a gateway appears, is paused or resumed, gets other time, or ends',
  examples: ['envctl sandboxes watch'],
  details: [
    'A gateway has no stream of changes, so its list is read at an interval, and what comes and goes between two looks is not seen. Those that are there at the beginning appear first. The watch goes on while the gateway cannot be reached.',
  ],
  arguments: [],
  options: [
    { flags: '--interval <time>', help: 'between two looks; default: 2s', parse: parseWaiting },
    { flags: '--count <number>', help: 'end after so many changes', parse: parseCount },
  ],
  json: 'one line per change: {"type":"appear"|"pause"|"resume"|"time"|"end","id","state","phase","address","startedAt","endAt","secondsLeft","metadata"}',
  async run(call, { interval = DEFAULT_INTERVAL_MS, count = Number.POSITIVE_INFINITY }) {
    if (interval < LEAST_INTERVAL_MS) throw usageError(`--interval is ${LEAST_INTERVAL_MS}ms at least`);
    const gateway = await call.gateway();
    const changes = new SandboxChanges();
    let told = 0;
    for await (const now of looksAt(call, gateway, interval)) {
      for (const change of changes.take(now)) {
        await tell(call, change);
        if (++told >= count) return 0;
      }
    }
    return 0;
  },
});

/** Reads the list again and again. Throws a `Failure` for the first look, and for each that trying again does not help. */
async function* looksAt(
  { output }: Call,
  gateway: HttpClient,
  intervalMs: number,
): AsyncGenerator<readonly SandboxLine[]> {
  yield await listSandboxes(gateway, undefined);
  for (let isLost = false; ; ) {
    await delay(intervalMs);
    try {
      const now = await listSandboxes(gateway, undefined);
      if (isLost) output.note({ style: 'dim', text: '[the gateway answers again]' });
      isLost = false;
      yield now;
    } catch (error) {
      if (!(error instanceof Failure && ['unreachable', 'timeout'].includes(error.reason))) throw error;
      if (!isLost) output.warn(error.message);
      isLost = true;
    }
  }
}

async function tell({ output }: Call, change: SandboxChange): Promise<void> {
  const { type, id, state, phase, address, secondsLeft, metadata, startedAt, endAt } = change;
  const shown = { type, id, state, phase, address, startedAt, endAt, secondsLeft, metadata };
  const isOver = type === 'end' || secondsLeft === null;
  await output.result(shown, () =>
    output.line(
      { style: STYLES[type], text: type.padEnd(8) },
      { style: 'bold', text: id },
      `  ${type === 'end' ? '-' : phase || state}  ${isOver ? '-' : `${formatSeconds(secondsLeft)} left`}  ${address}`,
    ),
  );
}
