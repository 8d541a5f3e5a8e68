import { closeSync, readSync } from 'node:fs';
import { isSystemError } from '../../../base/errors.ts';
import { native } from '../system/native.ts';

export const MESSAGE_BYTES = 16 * 1024;

/** Bytes with descriptors, which belong to whoever has the message. */
export interface Message {
  readonly bytes: Buffer;
  readonly descriptors: readonly number[];
}

/**
 * Opens a queue of messages in the kernel, made of two connected sockets. It lives as long as any process has its reading end, and
 * so do the descriptors in it. Throws socketpair(2)'s errors. Source: unix(7).
 */
export function openQueue(): { readonly read: number; readonly write: number } {
  return native.messageQueue();
}

/** Appends a message with duplicates of its descriptors. Throws sendmsg(2)'s errors, EAGAIN when the queue is full. */
export function appendMessage(writing: number, { bytes, descriptors }: Message): void {
  native.sendMessage(writing, bytes, Buffer.from(Int32Array.from(descriptors).buffer));
}

/**
 * Returns the first message of the queue with this reading end, where it stays; null when it is empty. Throws recvmsg(2)'s
 * errors.
 */
export function firstMessage(reading: number): Message | null {
  try {
    const { bytes, descriptors } = native.peekMessage(reading);
    const numbers = Array.from({ length: descriptors.length / 4 }, (_, index) =>
      descriptors.readInt32LE(4 * index),
    );
    return { bytes, descriptors: numbers };
  } catch (error) {
    if (isSystemError(error, 'EAGAIN')) return null;
    throw error;
  }
}

/** Drops the first message with its descriptors; returns false when the queue is empty. */
export function dropFirstMessage(reading: number): boolean {
  try {
    readSync(reading, Buffer.alloc(1));
    return true;
  } catch (error) {
    if (isSystemError(error, 'EAGAIN')) return false;
    throw error;
  }
}

export function closeAll(descriptors: readonly number[]): void {
  for (const descriptor of descriptors) closeSync(descriptor);
}
