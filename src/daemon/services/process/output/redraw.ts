import { within } from '../../../../base/abort.ts';
import type { Terminal } from '../../../linux/processes/pty.ts';
import type { Output } from './output.ts';
import type { Reader } from './reader.ts';

/** A program has drawn itself when it has written something, and then nothing for this time, in milliseconds. */
const QUIET_MS = 100;
/** A program that writes nothing, or does not stop, has the other size for this time, in milliseconds. */
const LIMIT_MS = 2000;

/**
 * Asks the program in a terminal to draw itself again, by another size and back. The size changes back when the program has drawn,
 * because the kernel joins two signals that the program has not taken, and the program would then find the size that it knows.
 * Requests meanwhile are joined, because the last drawing is for all readers.
 */
export async function redraw(pid: number, terminal: Terminal, output: Output): Promise<void> {
  using distortion = terminal.distort();
  if (!distortion) return;
  using reader = output.read(pid, null);
  await within(LIMIT_MS, drawn(reader), () => {});
}

async function drawn(reader: Reader): Promise<void> {
  // The first event is that of the start.
  await reader.next();
  let events = await reader.next();
  while (events !== null) events = await within(QUIET_MS, Promise.resolve(reader.next()), () => null);
}
