import { closeSync } from 'node:fs';
import { messageOf } from '../../../base/errors.ts';
import { closeAll } from '../../linux/memory/message-queue.ts';
import type { FoundRecord } from '../../linux/memory/record.ts';
import type { KeptRecord, RecordStore } from '../../linux/memory/record-store.ts';
import { contentOf, createMemory } from '../../linux/memory/shared-memory.ts';
import { readInFlight } from '../../linux/processes/read-buffer.ts';
import type { StoredDescriptor } from '../../linux/system/systemd.ts';
import type { GuestState } from '../guest/guest.ts';
import type { VolumeState } from '../init/volumes.ts';
import type { ProcessRecord, Recovered } from '../process/recovery/records.ts';
import { checkHead, type Head } from './state.ts';

/** The settings of the guest. */
export interface Settings {
  readonly guest: GuestState;
  /** The time of the last /init that was applied, as a decimal number of nanoseconds; null: none. */
  readonly initTimestamp: string | null;
  readonly volumes: readonly VolumeState[];
}

type Record = ProcessRecord | ({ readonly about: 'settings' } & Settings);

/** What a killed daemon has left. */
export interface Found extends Recovered {
  readonly settings: Settings | null;
  /** Call it when everything is recorded again. */
  readonly forget: () => void;
}

/**
 * Reads the records of a killed daemon. Those of a version that this program cannot read stay in the store for another
 * one; `onRefused` gets the reason.
 */
export function recover(
  store: RecordStore,
  stored: readonly StoredDescriptor[],
  onRefused: (reason: string) => void,
): Found {
  const { records, forget } = store.recover(stored);
  const readable = records.filter((record) => isReadable(record, onRefused));
  const processes: Recovered['processes'][number][] = [];
  const outputs = new Map<string, number>();
  const starting = new Set<string>();
  let settings: Settings | null = null;
  let inFlight: Recovered['inFlight'] = null;
  for (const { key, state, descriptors } of readable) {
    // Written by a program of ours.
    const record = state as Record;
    if (record.about === 'settings') settings = settingsOf(record, descriptors.time);
    if (record.about === 'process') processes.push({ key, recorded: record, descriptors });
    if (record.about === 'output' && descriptors.memory !== undefined) outputs.set(key, descriptors.memory);
    if (record.about === 'reads') inFlight = readsOf(record.output, descriptors) ?? inFlight;
    if (record.about === 'starting' && record.leaf !== null) starting.add(record.leaf);
  }
  const forgetAll = () => {
    for (const { key } of readable) forget(key);
  };
  return { settings, processes, outputs, inFlight, starting, forget: forgetAll };
}

function readsOf(output: string, { buffer, transit }: FoundRecord['descriptors']): Recovered['inFlight'] {
  if (buffer === undefined || transit === undefined) return null;
  const read = readInFlight(buffer, transit);
  closeAll([buffer, transit]);
  return read && { output, read };
}

function isReadable({ writer, descriptors }: FoundRecord, onRefused: (reason: string) => void): boolean {
  try {
    checkHead(writer as Head);
    return true;
  } catch (error) {
    closeAll(Object.values(descriptors));
    onRefused(messageOf(error));
    return false;
  }
}

/** Keeps the settings of the guest, and apart from them the time of the last /init, which changes with each resume. */
export class SettingsRecord {
  readonly #record: KeptRecord;
  readonly #time = createMemory(BigInt64Array.BYTES_PER_ELEMENT);
  /** The only element is the time in nanoseconds, or the one nearest to it. */
  readonly #nanoseconds = new BigInt64Array(this.#time.bytes.buffer, this.#time.bytes.byteOffset, 1);
  #text = '';

  constructor(store: RecordStore) {
    this.#record = store.record();
  }

  /** Replaces the settings if they have changed. `initNs`: the time of the last /init that was applied, or null. */
  set(settings: Omit<Settings, 'initTimestamp'>, initNs: bigint | null): void {
    this.#nanoseconds[0] = nearest(initNs ?? NEVER_NS);
    const text = JSON.stringify(settings);
    if (text === this.#text && this.#time.descriptor !== null) return;
    this.#text = text;
    const initTimestamp = initNs?.toString() ?? null;
    const state: Record = { about: 'settings', initTimestamp, ...settings };
    this.#record.set(state, { time: this.#time.descriptor });
  }
}

/** No request is older. */
const NEVER_NS = -(2n ** 63n);
const LATEST_NS = 2n ** 63n - 1n;

/** Of 64 bits: some 292 years before and after 1970. */
function nearest(timeNs: bigint): bigint {
  if (timeNs < NEVER_NS) return NEVER_NS;
  return timeNs > LATEST_NS ? LATEST_NS : timeNs;
}

/** The settings with the time that was kept apart from them, which is closed. */
function settingsOf(record: Settings, time: number | undefined): Settings {
  if (time === undefined) return record;
  const timeNs = contentOf(time).readBigInt64LE();
  closeSync(time);
  return { ...record, initTimestamp: timeNs === NEVER_NS ? null : timeNs.toString() };
}
