import type { StoredEvent } from './shared-state.ts';

/** Returns an event as a platform gets it. Its id stays unique if the registry is emptied, because it has the time, too. */
export function eventView({ number, at, ...event }: StoredEvent) {
  return { id: `${at}-${number}`, at: new Date(at).toISOString(), ...event };
}

/** Returns the number of the event with this id, or null if the text is no id. */
export function eventNumber(id: string): number | null {
  const [, number] = /^\d{1,15}-(\d{1,15})$/.exec(id) ?? [];
  return number === undefined ? null : Number(number);
}
