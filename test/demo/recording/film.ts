/** A piece of a line in one style. */
export interface Span {
  readonly text: string;
  /** The index of a color of the terminal; null: that of the text. */
  readonly color: number | null;
  readonly isBold: boolean;
  readonly isDim: boolean;
}

/** What a terminal shows from a moment on. */
export interface Still {
  /** In milliseconds from the beginning. */
  readonly time: number;
  readonly lines: readonly (readonly Span[])[];
}

const [CELL, LINE, EDGE] = [8.4, 19, 12];
/** The colors of a terminal that programs choose by their index. */
const COLORS = ['#3b4252', '#ff7b72', '#7ee787', '#e3b341', '#79c0ff', '#d2a8ff', '#76e3ea', '#d0d7de'];
/** How long the last still stays, in milliseconds. */
const LAST_MS = 4000;

/**
 * Returns stills as an SVG that shows one after the other, again and again, without a script. Lines that several stills have are in it
 * once. Whoever wants no motion sees the last one.
 */
export function filmOf(stills: readonly Still[], { cols = 80, rows = 24, title = '' }): string {
  const [width, height] = [cols * CELL + 2 * EDGE, rows * LINE + 2 * EDGE];
  const total = Math.round((stills.at(-1)?.time ?? 0) + LAST_MS);
  const known = new Map<string, number>();
  const frames = stills.map(({ lines }, index) => {
    const uses = lines.map((line, row) => {
      const text = textOf(line);
      if (text === '') return '';
      if (!known.has(text)) known.set(text, known.size);
      return `<use href="#l${known.get(text)}" y="${index * height + EDGE + (row + 0.75) * LINE}"/>`;
    });
    return uses.join('');
  });
  const keys = stills.map(
    ({ time }, index) => `${((time / total) * 100).toFixed(3)}%{transform:translateY(${-index * height}px)}`,
  );
  const last = -(stills.length - 1) * height;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${escaped(title)}">`,
    '<style>',
    `text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre;fill:#d0d7de}`,
    ...COLORS.map((color, index) => `.c${index}{fill:${color}}`),
    '.b{font-weight:bold}.d{opacity:.65}',
    `@keyframes film{${keys.join('')}100%{transform:translateY(${last}px)}}`,
    `#film{animation:film ${total}ms step-end infinite}`,
    `@media(prefers-reduced-motion:reduce){#film{animation:none;transform:translateY(${last}px)}}`,
    '</style>',
    `<rect width="100%" height="100%" rx="8" fill="#16181d"/>`,
    '<defs>',
    ...Array.from(
      known,
      ([text, index]) => `<text id="l${index}" x="${EDGE}" xml:space="preserve">${text}</text>`,
    ),
    '</defs>',
    '<g id="film">',
    ...frames,
    '</g>',
    '</svg>',
    '',
  ].join('\n');
}

/** The pieces of a line, each as wide as in a terminal, whatever the font is. */
function textOf(line: readonly Span[]): string {
  let column = 0;
  return line
    .map(({ text: padded, color, isBold, isDim }) => {
      const x = EDGE + column * CELL;
      column += padded.length;
      const text = padded.trimEnd();
      if (text === '') return '';
      const classes = [color === null ? '' : `c${color % 8}`, isBold ? 'b' : '', isDim ? 'd' : ''];
      const named = classes.filter((name) => name !== '').join(' ');
      const style = named === '' ? '' : ` class="${named}"`;
      return `<tspan x="${x.toFixed(1)}" textLength="${(text.length * CELL).toFixed(1)}"${style}>${escaped(text)}</tspan>`;
    })
    .join('');
}

function escaped(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
}
