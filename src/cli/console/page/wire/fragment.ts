/** The secret in the fragment of an address, and the place behind it; each may be empty. A place begins with a slash. */
export function partsOfFragment(hash: string): { readonly secret: string; readonly place: string } {
  const text = hash.replace(/^#/, '');
  const at = text.indexOf('/');
  return at < 0 ? { secret: text, place: '' } : { secret: text.slice(0, at), place: text.slice(at) };
}
