import { printable } from '../output/printable.ts';
import { answer, failed, type ToolAnswer, wholeCharacters } from './answer.ts';
import type { Ends } from './ends.ts';
import type { NewestOutput } from './newest-output.ts';
import type { Ending, RunningLine } from './running-line.ts';

/** Returns the answer for a command that was run to its end, with the ends of its two streams. */
export function runAnswer(
  running: RunningLine,
  ending: Ending,
  [stdout, stderr]: readonly [Ends, Ends],
  seconds: number,
): ToolAnswer {
  const [out, error] = [stdout.parts('standard output'), stderr.parts('standard error')];
  const left = out.left + error.left;
  const isLate = 'failure' in ending && ending.failure.reason === 'timeout';
  const words = [
    isLate ? `Killed: it had not ended after ${seconds} s.` : `${endingText(ending)}.`,
    ...(out.quoted.length + error.quoted.length === 0 ? ['There is no output.'] : []),
    ...missingText(running),
    ...(left > 0
      ? [
          `${left} bytes of output are left out: send the output to a file and read its parts, or raise max_bytes.`,
        ]
      : []),
  ].join(' ');
  const quoted = [...out.quoted, ...error.quoted];
  return 'exitCode' in ending ? answer(words, quoted) : failed(words, quoted);
}

/** Returns the answer with the output of a started command, from an offset on or the newest. */
export function outputAnswer(
  { offset, max_bytes: most }: { readonly offset?: number | undefined; readonly max_bytes: number },
  running: RunningLine,
  output: NewestOutput,
): ToolAnswer {
  const { begin, end } = output;
  const from = Math.min(end, Math.max(begin, offset ?? end - most));
  const bytes = output.read(from, most);
  // A character that is cut in two comes whole with the next read.
  const isLast = running.ending !== null && from + bytes.length === end;
  const whole = isLast ? bytes : wholeCharacters(bytes);
  const next = from + whole.length;
  const words = [
    running.ending ? `${endingText(running.ending)}.` : 'It runs.',
    `Bytes ${from} to ${next} of ${end}; offset ${next} goes on from here.`,
    ...(offset !== undefined && from > offset ? [`The bytes before ${from} are not kept any more.`] : []),
    ...(offset === undefined && from > begin ? [`Earlier output is kept from offset ${begin} on.`] : []),
    ...missingText(running),
  ].join(' ');
  return answer(words, whole.length === 0 ? [] : [{ name: 'output', text: whole.toString() }]);
}

function missingText({ missing }: RunningLine): string[] {
  if (missing === 0) return [];
  return [
    `${Number.isNaN(missing) ? 'Some' : missing} bytes of output were lost with a connection, or came too fast.`,
  ];
}

/** Returns how a command ended, without a point. */
export function endingText(ending: Ending): string {
  return 'exitCode' in ending
    ? `Exit code ${ending.exitCode}`
    : `It is not known how it ended: ${printable(ending.failure.message)}`;
}
