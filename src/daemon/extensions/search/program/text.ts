import { isUtf8 } from 'node:buffer';

const MARK = '\ufeff';
const UTF16_MARKS = [Buffer.from([0xff, 0xfe]), Buffer.from([0xfe, 0xff])];

/** The text of a file. Its byte order mark is apart, because it is part of no line. */
export interface FileText {
  readonly mark: '' | typeof MARK;
  readonly text: string;
  /** False if some bytes were not UTF-8, so that they would change when the text is encoded. */
  readonly isExact: boolean;
}

/** Returns the text of a file, or null if the content is binary or in UTF-16 with a byte order mark. */
export function textOf(content: Buffer): FileText | null {
  if (content.includes(0) || UTF16_MARKS.some((mark) => content.indexOf(mark) === 0)) return null;
  const isExact = isUtf8(content);
  const text = content.toString();
  return text.startsWith(MARK)
    ? { mark: MARK, text: text.slice(MARK.length), isExact }
    : { mark: '', text, isExact };
}
