/**
 * Returns whether a party with `own` of `most` places may have one more when `taken` are in use. It may as long as more
 * places are free than it has. So one party alone gets half of them, two get a third each, and a new party always finds a
 * free place.
 */
export function isFair(own: number, taken: number, most: number): boolean {
  return taken < most && (own === 0 || own < most - taken);
}
