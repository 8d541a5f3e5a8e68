import { strictObject } from 'zod';
import { Failure } from '../output/failure.ts';
import { counted } from '../output/formats.ts';
import { printable } from '../output/printable.ts';
import { answer, linesWithin } from './answer.ts';
import { bytesInput } from './inputs.ts';
import { defineTool, type Tool } from './tool.ts';

/** The stream begins with the ports that are there. It has told them when nothing has come for this time, in milliseconds. */
const QUIET_MS = 500;
const LONGEST_MS = 5_000;
const MAX_BYTES = 1024 * 1024;

export const listPortsTool: Tool = defineTool({
  name: 'list_ports',
  title: 'List ports',
  description:
    'Answers with the TCP ports of localhost at which something listens: port, address, user, process and command.',
  input: strictObject({ max_bytes: bytesInput() }),
  does: 'reads',
  async run({ connection, input, signal }) {
    const limit = AbortSignal.any([signal, AbortSignal.timeout(LONGEST_MS)]);
    const response = await connection.http
      .send({ path: '/ports/stream', signal: limit })
      .catch((error: Failure) => {
        if (error.reason !== 'not_found') throw error;
        throw new Failure('failed', 'this daemon does not tell ports: use `ss -ltn` by a command');
      });
    let text = '';
    const quiet = setTimeout(() => response.destroy(), QUIET_MS);
    try {
      for await (const piece of response.setEncoding('utf8')) {
        quiet.refresh();
        text += piece;
        if (text.length > MAX_BYTES) break;
      }
    } catch {
      // The stream has no end of its own, so it was ended here.
    } finally {
      clearTimeout(quiet);
    }
    // What comes after the last line feed is a line that is not whole.
    const lines = text.split('\n').slice(0, -1).flatMap(portLine);
    const shown = linesWithin(lines, input.max_bytes);
    const left = lines.length - shown.shown;
    const words = `${counted(lines.length, 'port')}.${left > 0 ? ` The answer leaves out ${left} of them: raise max_bytes.` : ''}`;
    return answer(words, shown.text === '' ? [] : [{ name: 'ports', text: shown.text }]);
  },
});

/** Returns what a line of the stream tells of a port that is there, or nothing for another line. */
function portLine(line: string): string[] {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return [];
  }
  const { type, port, address, user, pid, command } = (value ?? {}) as Readonly<Record<string, unknown>>;
  if (type !== 'appear' || typeof port !== 'number') return [];
  return [printable(`${port}  ${address}  ${user}  ${pid ?? '?'}  ${command ?? '?'}`)];
}
