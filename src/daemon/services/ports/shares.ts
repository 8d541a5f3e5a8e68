import type { Listener } from './forward.ts';

/** Of the ports that are forwarded, those of one user. */
const USER_SHARE = 0.5;

/**
 * At most `most` of the listeners: one of each user, then a second of each, and so on, so that no user, and no number
 * of users with many, keeps another from the first; half of all of one user. Of one user, and of several with as many,
 * those come first that are first.
 */
export function fairShares(listeners: Iterable<Listener>, most: number): Listener[] {
  const share = Math.max(1, Math.floor(most * USER_SHARE));
  const counts = new Map<number, number>();
  const rows: Listener[][] = [];
  for (const listener of listeners) {
    const count = counts.get(listener.uid) ?? 0;
    if (count === share) continue;
    counts.set(listener.uid, count + 1);
    rows[count] ??= [];
    rows[count].push(listener);
  }
  return rows.flat().slice(0, most);
}
