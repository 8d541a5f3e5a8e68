/** What the metadata service tells about the collector and the sandbox; null: nothing. */
export interface CollectorAddress {
  readonly address: string | null;
  readonly sandboxID: string | null;
  readonly templateID: string | null;
}

const LONGEST = 2048;
/** A name or an address, and perhaps a port. */
const HOST = /^([a-z\d._-]+|\[[\da-f:.]+\])(:\d{1,5})?$/i;

/** The URL of an http or https URL, or of `host:port`, which is http; null: it is neither. */
export function parseAddress(text: string): URL | null {
  if (text.length > LONGEST) return null;
  if (/^https?:\/\//i.test(text)) return URL.parse(text);
  return HOST.test(text) ? URL.parse(`http://${text}/`) : null;
}
