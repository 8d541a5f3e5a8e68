import { messageOf } from '../../../base/errors.ts';
import { closeAll } from '../../linux/memory/message-queue.ts';
import { readInFlight } from '../../linux/processes/read-buffer.ts';
import type { StoredDescriptor } from '../../linux/system/systemd.ts';
import type { EarlierProcess, EarlierProcesses } from '../process/lifecycle/earlier.ts';
import { decodeProcess } from '../process/lifecycle/process-state.ts';
import type { BegunStart, ProcessRecordContent } from '../process/lifecycle/records.ts';
import { NO_ENDS } from '../process/output/channels.ts';
import type { FoundRecord, RecordStore } from '../records/record-store.ts';
import { checkHead, type ExtensionState, type Head, type Settings } from './state.ts';

/** What a record says. */
export type RecordContent =
  | ProcessRecordContent
  | ({ readonly about: 'settings' } & Settings)
  | ({ readonly about: 'extension' } & Pick<ExtensionState, 'extension' | 'state'>);

/** What a daemon that was killed has left. */
export interface Found {
  readonly settings: Settings | null;
  readonly processes: EarlierProcesses;
  /** Their descriptors are in the order in which they were recorded. */
  readonly extensions: readonly ExtensionState[];
  /**
   * Why some records cannot be read: they are of another version. They stay in the store for a program that can read them.
   */
  readonly refused: readonly string[];
  /** Drops the records that were read. Call it when everything was recorded again. */
  readonly forget: () => void;
}

/** Reads the records of a daemon that was killed. */
export function recover(store: RecordStore, stored: readonly StoredDescriptor[]): Found {
  const { records, forget } = store.recover(stored);
  const { readable = [], others = [] } = Object.groupBy(records, (record) =>
    reasonToRefuse(record) === null ? 'readable' : 'others',
  );
  for (const { descriptors } of others) closeAll(Object.values(descriptors));
  const processes: EarlierProcess[] = [];
  const outputs = new Map<string, number>();
  const starting: BegunStart[] = [];
  let settings: Settings | null = null;
  let inFlight: EarlierProcesses['inFlight'] = null;
  for (const { key, state, descriptors } of readable) {
    // The shape is not checked: an envd has written it, to a queue that only root has.
    const content = state as RecordContent;
    if (content.about === 'settings') settings = content;
    if (content.about === 'process') processes.push(processOf(key, content, descriptors));
    if (content.about === 'output' && descriptors.memory !== undefined) outputs.set(key, descriptors.memory);
    if (content.about === 'reads') inFlight = readsOf(content.output, descriptors) ?? inFlight;
    if (content.about === 'starting') starting.push({ ...content, record: key });
  }
  const forgetAll = () => {
    for (const { key } of readable) forget(key);
  };
  const found = { processes, outputs, inFlight, drains: [], leaves: null, starting };
  const refused = others.map((record) => reasonToRefuse(record) ?? '');
  const extensions = readable.flatMap(extensionOf);
  return { settings, processes: found, extensions, refused, forget: forgetAll };
}

/** Returns why this program cannot read a record; null when it can. */
function reasonToRefuse({ writer }: FoundRecord): string | null {
  try {
    checkHead(writer as Head);
    return null;
  } catch (error) {
    return messageOf(error);
  }
}

/** Returns a process, which is not this program's child. Without a pidfd its pid may be that of another process by now. */
function processOf(
  key: string,
  content: Extract<RecordContent, { readonly about: 'process' }>,
  { pidfd = null, ...ends }: Readonly<Record<string, number | null>>,
): EarlierProcess {
  const read = { ...content, ends: { ...NO_ENDS, ...ends }, pidfd, isChild: false };
  return { ...decodeProcess(read, (descriptor) => descriptor), record: key, output: content.output };
}

function extensionOf({ key, state, descriptors }: FoundRecord): ExtensionState[] {
  const content = state as RecordContent;
  if (content.about !== 'extension') return [];
  return [{ ...content, record: key, descriptors: Object.values(descriptors) }];
}

function readsOf(
  output: string,
  { buffer, transit }: FoundRecord['descriptors'],
): EarlierProcesses['inFlight'] {
  if (buffer === undefined || transit === undefined) return null;
  const read = readInFlight(buffer, transit);
  closeAll([buffer, transit]);
  return read && { output, read };
}
