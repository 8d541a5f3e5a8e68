import { closeSync } from 'node:fs';
import type { Socket } from 'node:net';

/** The handle of a Node socket, which its type definitions omit. */
interface Handle {
  readonly fd: number;
  readStop(): void;
}

/** Null for a socket that is closed, or has no descriptor of its own. */
export function handleOf(socket: Socket | null): Handle | null {
  const { _handle: handle } = (socket ?? {}) as { _handle?: Partial<Handle> | null };
  return handle && Number(handle.fd) >= 0 && typeof handle.readStop === 'function'
    ? (handle as Handle)
    : null;
}

/** Closes a descriptor when `job`, which uses it, has settled. */
export function closeAfter(job: Promise<unknown>, descriptor: number): void {
  const close = () => closeSync(descriptor);
  job.then(close, close);
}
