import { parseCount } from '../../../base/program/settings.ts';
import type { ProcessSelector } from '../../../gen/process/process_pb.js';
import type { Connection } from '../../connection/connection.ts';
import { type FollowEvent, Follower } from '../../process/follow.ts';
import { orKept } from '../../process/kept-output.ts';
import { LastLines } from '../../process/last-lines.ts';
import { findProcess } from '../../process/selector.ts';
import type { Call } from '../spec/call.ts';
import { defineCommand } from '../spec/command.ts';
import { followerOf, PROCESS_ARGUMENT } from './attach.ts';
import { present } from './session.ts';

/** The kept output counts as complete after this time without output, in seconds. */
const QUIET_S = 1;
/** The command waits at most this time for such a pause, in milliseconds. */
const LONGEST_MS = 15_000;

export const logsCommand = defineCommand<{ readonly follow?: boolean; readonly tail?: number }>({
  name: 'logs',
  summary: 'Show the output of a process that the daemon keeps',
  examples: ['envctl logs build', 'envctl logs --follow --tail 20 build'],
  details: [
    'envd keeps the last MiB of each process, until 30 s after its end; with `run --keep` for longer, one stream after the other. A daemon that keeps nothing shows what comes from now on. Without --follow, envctl leaves when nothing more has come for a second.',
  ],
  arguments: [PROCESS_ARGUMENT],
  options: [
    { flags: '-f, --follow', help: 'go on until the process ends' },
    { flags: '-n, --tail <lines>', help: 'begin with the last lines', parse: parseCount },
  ],
  json: 'the events of `run`',
  async run(call, { follow = false, tail }) {
    const connection = await call.connection();
    const process = await findProcess(connection, call.argument(0));
    if (tail !== undefined) {
      const events = () => eventsFrom(call, { connection, process, follow }, tail);
      await present(call, { events });
    } else {
      const follower = followerOf(call, connection, process, true, follow ? {} : { keepaliveS: QUIET_S });
      const live = follow ? follower.events() : untilNow(follower.events());
      await present(call, { events: () => orKept(live, connection, call.argument(0)) });
    }
    return 0;
  },
});

/** Yields events until one is behind the kept output. */
async function* untilNow(events: AsyncIterable<FollowEvent>): AsyncGenerator<FollowEvent> {
  const until = performance.now() + LONGEST_MS;
  for await (const event of events) {
    yield event;
    if (event.type === 'idle' || performance.now() > until) return;
  }
}

/** Yields the events of a process, without the kept output before its last lines. */
async function* eventsFrom(
  call: Call,
  wanted: { readonly connection: Connection; readonly process: ProcessSelector; readonly follow: boolean },
  tail: number,
): AsyncGenerator<FollowEvent> {
  const { connection, process, follow } = wanted;
  const kept = followerOf(call, connection, process, true, { keepaliveS: QUIET_S });
  const last = new LastLines(tail);
  for await (const event of orKept(untilNow(kept.events()), connection, call.argument(0))) {
    if (event.type === 'end') {
      yield* last.take();
      yield event;
      return;
    }
    if (event.type === 'output') last.add(event);
    else if (event.type !== 'idle') yield event;
  }
  yield* last.take();
  if (!follow) return;
  const resume = { process, resumeFrom: kept.offsets };
  yield* new Follower(connection, {
    open: (stream) => connection.processes.connect(resume, stream),
  }).events();
}
