/** What the metadata service says about the collector and the sandbox. Members that were absent are null. */
export interface CollectorAddress {
  readonly address: string | null;
  readonly sandboxID: string | null;
  readonly templateID: string | null;
}

/** The most characters of an address. */
const LONGEST = 2048;
/** Matches a name or an address, and perhaps a port. */
const HOST = /^([a-z\d._-]+|\[[\da-f:.]+\])(:\d{1,5})?$/i;

/** Parses an http or https URL, or `host:port`, which means http; returns null when the text is neither. */
export function parseAddress(text: string): URL | null {
  if (text.length > LONGEST) return null;
  if (/^https?:\/\//i.test(text)) return URL.parse(text);
  return HOST.test(text) ? URL.parse(`http://${text}/`) : null;
}
