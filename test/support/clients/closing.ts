import type { EventEmitter } from 'node:events';

/** Resolves when a connection is closed, also by a reset, of which `once` of node:events makes a rejection. */
export function closing(connection: EventEmitter): Promise<void> {
  return new Promise((resolve) => connection.on('error', () => {}).once('close', () => resolve()));
}
