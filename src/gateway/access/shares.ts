/**
 * Whether somebody who has `own` of `most` places may have one more, when `taken` are in use: as long as no fewer are left for
 * others than are already their own. So one alone has half of them, two have a third each, and somebody new always finds one.
 */
export function isFair(own: number, taken: number, most: number): boolean {
  return taken < most && (own === 0 || own < most - taken);
}
