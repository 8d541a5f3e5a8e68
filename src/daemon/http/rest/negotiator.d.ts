/** negotiator has no types of its own; these are the members that the daemon uses. */
declare module 'negotiator' {
  export class Negotiator {
    constructor(request: { headers: Readonly<Record<string, string | undefined>> });
    /** Returns the acceptable codings among `available`, best first. `preferred` orders those of equal quality. */
    encodings(available: readonly string[], options?: { preferred?: readonly string[] }): string[];
    /** Returns the acceptable media types among `available`, best first. */
    mediaTypes(available: readonly string[]): string[];
  }
}
