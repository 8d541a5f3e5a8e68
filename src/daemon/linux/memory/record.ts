import { closeSync } from 'node:fs';
import { closeAll, type Message } from './message-queue.ts';
import { contentOf } from './shared-memory.ts';

/** Descriptors by what they are for; null: none. */
export type NamedDescriptors = Readonly<Record<string, number | null>>;

/** Which program has written a record. */
export type Writer = object;

/** A record as it was found. Its descriptors belong to who has it. */
export interface FoundRecord {
  readonly key: string;
  readonly writer: Writer;
  readonly state: unknown;
  readonly descriptors: Readonly<Record<string, number>>;
}

/** What a message says. */
export interface RecordContent {
  readonly key: string;
  readonly writer: Writer;
  /** Of messages with the same key the latest one is valid. */
  readonly at: number;
  readonly names: readonly string[];
  readonly state: unknown;
}

/** Closes the descriptors of the older one of two records with the same key. */
export function addLatest(
  found: Map<string, FoundRecord & RecordContent>,
  record: FoundRecord & RecordContent,
): void {
  const other = found.get(record.key);
  const isLatest = !other || other.at < record.at;
  const older = isLatest ? other : record;
  if (isLatest) found.set(record.key, record);
  if (older) closeAll(Object.values(older.descriptors));
}

/** The record of a message; its descriptors belong to the result. */
export function parse({ bytes, descriptors }: Message): FoundRecord & RecordContent {
  const file = bytes.length === 0 ? descriptors.at(-1) : undefined;
  const text = file === undefined ? bytes : contentOf(file);
  if (file !== undefined) closeSync(file);
  // Written by a program of ours, to a queue that only root has.
  const content: RecordContent = JSON.parse(text.toString());
  const named = Object.fromEntries(content.names.map((name, index) => [name, descriptors[index] ?? -1]));
  return { ...content, descriptors: named };
}
