/** What the metadata service says of the collector and the sandbox; null: nothing. */
export interface CollectorAddress {
  readonly address: string | null;
  readonly sandboxID: string | null;
  readonly templateID: string | null;
}

const LONGEST = 2048;
/** A name or an address, and perhaps a port. */
const HOST = /^([a-z\d._-]+|\[[\da-f:.]+\])(:\d{1,5})?$/i;

/** Parses an http or https URL, or `host:port`, which means http; null when it is neither. */
export function parseAddress(text: string): URL | null {
  if (text.length > LONGEST) return null;
  if (/^https?:\/\//i.test(text)) return URL.parse(text);
  return HOST.test(text) ? URL.parse(`http://${text}/`) : null;
}
