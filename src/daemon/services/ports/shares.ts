/** The share of all forwarded ports that one user may have. */
const USER_SHARE = 0.5;

/**
 * Chooses at most `most` listeners: one of each user, then a second of each, and so on, so that nobody can keep another
 * user from the first. One user gets at most half. Among listeners of equal rank, the first ones are chosen.
 */
export function fairShares<L extends { readonly uid: number }>(listeners: Iterable<L>, most: number): L[] {
  const share = Math.max(1, Math.floor(most * USER_SHARE));
  const counts = new Map<number, number>();
  const rows: L[][] = [];
  for (const listener of listeners) {
    const count = counts.get(listener.uid) ?? 0;
    if (count === share) continue;
    counts.set(listener.uid, count + 1);
    rows[count] ??= [];
    rows[count].push(listener);
  }
  return rows.flat().slice(0, most);
}
