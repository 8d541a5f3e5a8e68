import { styleText } from 'node:util';

const WIDTH = Math.min(process.stdout.columns ?? 120, 140);
/** The column of messages, after the time and the arrow; later rows are indented by two more. */
const MARGIN = 10;
let stepStarted = 0;

/** Begins a step: a title, and a sentence that says what to look at. */
export function heading(number: number, title: string, explanation: string): void {
  stepStarted = performance.now();
  console.log(`\n${style('bold', `${number}. ${title}`)}  ${style('dim', explanation)}`);
}

/** What the client sends: the operation, then its message. */
export function sent(operation: string, message: string): void {
  const [first = '', ...rest] = rows(`${operation}  ${message}`.trimEnd());
  const painted = style('cyan', first.slice(0, operation.length)) + first.slice(operation.length);
  print(`        ${style('cyan', '→')}`, [painted, ...rest]);
}

/** The daemon's response, and its time after the start of the step in milliseconds. */
export function received(message: string): void {
  print(`${elapsed()}${style('green', '←')}`, rows(message));
}

/** A refusal by the daemon. */
export function refused(message: string): void {
  const painted = rows(message).map((row) => style('red', row));
  print(`${elapsed()}${style('red', '←')}`, painted);
}

/** A remark of the tour itself. */
export function remark(text: string): void {
  print(' '.repeat(MARGIN - 1), [style('yellow', text)]);
}

/** Plain text. */
export function say(text: string): void {
  console.log(text);
}

const elapsed = () => style('dim', `${Math.round(performance.now() - stepStarted)} ms `.padStart(MARGIN - 2));

function print(margin: string, content: readonly string[]): void {
  console.log(`${margin} ${content.join(`\n${' '.repeat(MARGIN + 2)}`)}`);
}

/** The lines of `content`; those that are too wide are broken between members or headers. */
function rows(content: string): string[] {
  return content.split('\n').flatMap((line) => {
    const wrapped = [''];
    for (const piece of line.split(/(?<=,)(?=["{])|(?<= {2})(?=["a-z[])/)) {
      const row = wrapped.at(-1) ?? '';
      if (row && row.length + piece.length > WIDTH - MARGIN - 2) wrapped.push(piece);
      else wrapped.splice(-1, 1, row + piece);
    }
    return wrapped.map((row) => row.trimEnd());
  });
}

/** Colours, on a terminal only. */
function style(format: Parameters<typeof styleText>[0], content: string): string {
  return styleText(format, content, { stream: process.stdout });
}
