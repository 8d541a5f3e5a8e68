import { number, string } from 'zod';

/** An answer has this much text from the sandbox unless the client asks for more or less, in bytes. */
const USUAL_BYTES = 30_000;
const MOST_BYTES = 200_000;
const PATH_MAX = 4096;

/** Returns the schema of a path. */
export function pathInput(description: string) {
  return string()
    .min(1)
    .max(PATH_MAX)
    .refine((path) => !path.includes('\0'), 'a path has no NUL')
    .describe(description);
}

/** Returns the schema of the number of bytes that an answer may have. */
export function bytesInput() {
  return number()
    .int()
    .min(100)
    .max(MOST_BYTES)
    .default(USUAL_BYTES)
    .describe('how much text the answer may have, in bytes');
}

/** Returns the schema of an integer with a default. */
export function integerInput(least: number, most: number, usual: number, description: string) {
  return number().int().min(least).max(most).default(usual).describe(description);
}
