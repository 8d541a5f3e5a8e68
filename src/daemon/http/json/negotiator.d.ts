/** The used part of negotiator, which has no types of its own. */
declare module 'negotiator' {
  export class Negotiator {
    constructor(request: { headers: Readonly<Record<string, string | undefined>> });
    /** The acceptable ones of `available`, best first; `preferred` orders those of equal quality. */
    encodings(available: readonly string[], options?: { preferred?: readonly string[] }): string[];
    /** As `encodings`, for media types. */
    mediaTypes(available: readonly string[]): string[];
  }
}
