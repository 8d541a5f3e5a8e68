import type { OutgoingMessage } from 'node:http';
import { giveBack } from '../../base/buffers.ts';

/** Smaller pieces share their memory with others, or are not worth it. */
const WORTH_IT = 32 * 1024;

/**
 * Gives the memory of large pieces of a body back as soon as the kernel has them: nobody else sees them on their way
 * through. Left to the garbage collector, they were half of the CPU of an upload.
 */
export function giveBackWhenSent(message: OutgoingMessage): void {
  const write = message.write.bind(message) as (chunk: unknown, onSent?: () => void) => boolean;
  message.write = (chunk: unknown) =>
    chunk instanceof Buffer && chunk.length >= WORTH_IT ? write(chunk, () => giveBack(chunk)) : write(chunk);
}
