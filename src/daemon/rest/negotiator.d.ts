/** The part of negotiator that we use; the package has no types of its own. */
declare module 'negotiator' {
  export class Negotiator {
    constructor(request: { headers: Readonly<Record<string, string | undefined>> });
    /** The acceptable ones of `available`, best first; of equals, `preferred` ones first. */
    encodings(available: readonly string[], options?: { preferred?: readonly string[] }): string[];
    /** As `encodings`, of media types. */
    mediaTypes(available: readonly string[]): string[];
  }
}
