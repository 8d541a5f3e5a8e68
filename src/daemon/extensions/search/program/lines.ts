/** This many characters of a line are shown. */
const SHOWN = 1000;

/** A match, with the line in which it begins. */
export interface LineMatch {
  /** Lines and columns are counted from 1. */
  readonly line: number;
  readonly column: number;
  readonly text: string;
  readonly before: readonly string[];
  readonly after: readonly string[];
}

/**
 * Yields the first match of `pattern` in each line of a text, with `context` lines before and after it. The pattern must be
 * global.
 */
export function* matchingLines(text: string, pattern: RegExp, context: number): Generator<LineMatch> {
  pattern.lastIndex = 0;
  let line = 1;
  let counted = 0;
  for (let match = pattern.exec(text); match !== null; match = pattern.exec(text)) {
    const { index } = match;
    const start = index === 0 ? 0 : text.lastIndexOf('\n', index - 1) + 1;
    const end = endOf(text, index);
    for (let at = text.indexOf('\n', counted); at >= 0 && at < start; at = text.indexOf('\n', at + 1))
      line += 1;
    counted = start;
    yield {
      line,
      column: index - start + 1,
      text: shownLine(text, start, end, index),
      before: linesBefore(text, start, context),
      after: linesAfter(text, end, context),
    };
    if (end >= text.length) return;
    pattern.lastIndex = end + 1;
  }
}

function endOf(text: string, index: number): number {
  const end = text.indexOf('\n', index);
  return end < 0 ? text.length : end;
}

/** Returns the part of a line that is shown. Of a long line, this is the part around the character at `around`. */
function shownLine(text: string, start: number, end: number, around: number): string {
  const last = end > start && text[end - 1] === '\r' ? end - 1 : end;
  const from = last - start <= SHOWN ? start : Math.max(start, Math.min(around - SHOWN / 2, last - SHOWN));
  return text.slice(from, Math.min(last, from + SHOWN)).toWellFormed();
}

function linesBefore(text: string, start: number, count: number): string[] {
  const lines: string[] = [];
  for (let end = start - 1; end >= 0 && lines.length < count; ) {
    const begin = end === 0 ? 0 : text.lastIndexOf('\n', end - 1) + 1;
    lines.unshift(shownLine(text, begin, end, begin));
    end = begin - 1;
  }
  return lines;
}

function linesAfter(text: string, end: number, count: number): string[] {
  const lines: string[] = [];
  for (let start = end + 1; start < text.length && lines.length < count; ) {
    const last = endOf(text, start);
    lines.push(shownLine(text, start, last, start));
    start = last + 1;
  }
  return lines;
}
