import { structuredPatch } from 'diff';

const CONTEXT_LINES = 3;
const LIMIT_MS = 2000;
const MAX_LINES = 2000;

/** The lines in which a text differs from another one, each with the mark of a unified diff; null: they differ too much to be compared. */
export function differencesOf(theirs: string, mine: string): readonly string[] | null {
  const options = { context: CONTEXT_LINES, timeout: LIMIT_MS };
  const patch = structuredPatch('', '', theirs, mine, undefined, undefined, options);
  if (!patch) return null;
  const lines = patch.hunks.flatMap(({ newStart, lines }) => [`@@ line ${newStart}`, ...lines]);
  const rest = lines.length - MAX_LINES;
  return rest > 0 ? [...lines.slice(0, MAX_LINES), `@@ and ${rest} more lines`] : lines;
}
