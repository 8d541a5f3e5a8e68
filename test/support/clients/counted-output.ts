import type { OutputStream } from '../../../src/daemon/services/process/output/events.ts';

/** Output whose bytes tell their offset and stream. */
export function textOf(stream: OutputStream, offset: number, length: number): Buffer {
  const bytes = Buffer.allocUnsafe(length);
  for (let index = 0; index < length; index++)
    bytes[index] = ((offset + index) * 31 + stream.length * 7) % 251;
  return bytes;
}

export const streamOf = (write: number): OutputStream => (write % 5 === 0 ? 'stderr' : 'stdout');

export const sizeOf = (write: number): number => (write * 7919) % 3000;
