import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ScreenModes } from '../../../../../../src/daemon/services/process/output/screen-modes.ts';
import { TestScreen } from '../../../../../support/clients/screen.ts';

/* The modes of a terminal, by the output that sets them; and against xterm.js, which shows them. */

function scanned(...pieces: readonly (string | Uint8Array)[]): ScreenModes {
  const modes = new ScreenModes();
  for (const piece of pieces) modes.scan(Buffer.from(piece));
  return modes;
}

test.each([
  ['nothing', 'hello\r\n\x1b[1;31mred\x1b[m', ''],
  ['the alternate screen', '\x1b[?1049h', '\x1b[?1049h'],
  ['a screen that was left', '\x1b[?1049h\x1b[?1049l', ''],
  ['a screen that was left otherwise', '\x1b[?1049h\x1b[?47l', ''],
  ['several modes at once', '\x1b[?1;1000;1006h', '\x1b[?1;1000;1006h'],
  ['reports of the mouse that replace others', '\x1b[?1000h\x1b[?1002h', '\x1b[?1002h'],
  ['a hidden cursor', '\x1b[?25l', '\x1b[?25l'],
  ['a cursor that is shown again', '\x1b[?25l\x1b[?25h', ''],
  ['lines that do not wrap', '\x1b[?7l', '\x1b[?7l'],
  ['pastes, the focus and the keypad', '\x1b[?2004h\x1b[?1004h\x1b=', '\x1b[?2004;1004h\x1b='],
  ['the keypad by its number', '\x1b[?66h', '\x1b='],
  ['a keypad that was left', '\x1b=\x1b>', ''],
  ['the style of the cursor', '\x1b[5 q\x1b[6 q', '\x1b[6 q'],
  ['the usual style of the cursor', '\x1b[5 q\x1b[ q', ''],
  ['a reset', '\x1b[?1049;1000;2004h\x1b[?25l\x1b=\x1b[5 q\x1bc', ''],
  ['a soft reset', '\x1b[?1049h\x1b[?1h\x1b[?25l\x1b=\x1b[!p', '\x1b[?1049h'],
  ['other modes', '\x1b[?2026h\x1b[?12h\x1b[4h\x1b[20h', ''],
  ['modes that are not private', '\x1b[1049h\x1b[25l', ''],
  ['characters in between', '\x1b[?10\r4\n9h', '\x1b[?1049h'],
  ['a sequence that was broken off', '\x1b[?10\x1849h\x1b[?10\x1b[?25l', '\x1b[?25l'],
  ['a sequence of too many bytes', `\x1b[?${'0'.repeat(200)}25l`, ''],
  ['a title', '\x1b]0;[?1049h\x07\x1b[?25l', '\x1b[?25l'],
  ['a title that a sequence ends', '\x1b]0;title\x1b[?25l', '\x1b[?25l'],
  ['a text for the printer', '\x1bPq#0\x07;=>c\x1b\\', ''],
  ['a character set', '\x1b(0\x1b[?25l', '\x1b[?25l'],
])('after %s', (_, output, sequences) => {
  expect(scanned(output).sequences).toBe(sequences);
  const bytes = Buffer.from(output);
  for (let cut = 0; cut <= bytes.length; cut++)
    expect(scanned(bytes.subarray(0, cut), bytes.subarray(cut)).sequences).toBe(sequences);
  expect(scanned(...bytes.toString('latin1')).sequences).toBe(sequences);
});

test.each([
  ['text \x1b[?10', '\x1b[?10'],
  ['text \x1b[?1049h', ''],
  ['\x1b]0;ti', '\x1b]0;ti'],
  ['\x1b]0;title\x07 ', ''],
  ['\x1bPq#1', '\x1bPq#1'],
  ['\x1bPq#1\x1b', '\x1b'],
  ['\x1bPq#1\x1b\\', ''],
  ['\x1b(', '\x1b('],
])('%j has begun %j', (output, begun) => {
  expect(scanned(output).begun).toBe(begun);
});

const MODES = [1, 7, 25, 47, 66, 1000, 1002, 1003, 1004, 1006, 1047, 1049, 2004, 2026];
const sequence = fc.oneof(
  fc
    .record({
      modes: fc.array(fc.constantFrom(...MODES), { minLength: 1, maxLength: 4 }),
      change: fc.constantFrom('h', 'l'),
    })
    .map(({ modes, change }) => `\x1b[?${modes.join(';')}${change}`),
  fc.constantFrom('\x1b=', '\x1b>', '\x1bc', '\x1b[5 q', '\x1b[1;31m', '\x1b(B', '\x1b]0;a title\x07'),
  fc.constantFrom('\x1bP1$r0m\x1b\\', '\x1b[2J', '\x1b[?', '\x1b', '\x1b]2;', '\x1b[12', '\x18', 'é', '\r\n'),
  fc.string({ maxLength: 5 }),
);
const output = fc.array(sequence, { maxLength: 25 }).map((parts) => Buffer.from(parts.join('')));

describe('any output', () => {
  test('in pieces is read as if it came at once', () => {
    const pieces = fc.array(fc.oneof(output, fc.uint8Array({ maxLength: 20 })));
    fc.assert(
      fc.property(pieces, (all) => {
        const whole = scanned(Buffer.concat(all));
        const single = scanned(...all.flatMap((piece) => Array.from(piece, (byte) => Buffer.of(byte))));
        expect([single.sequences, single.begun]).toEqual([whole.sequences, whole.begun]);
        expect(scanned(whole.sequences).sequences).toBe(whole.sequences);
      }),
    );
  });

  test('is longer than what stands for it', () => {
    const bytes = fc.oneof(output, fc.uint8Array({ maxLength: 300 }));
    fc.assert(
      fc.property(bytes, (all) => {
        const { sequences, begun } = scanned(all);
        expect(Buffer.byteLength(sequences + begun, 'latin1')).toBeLessThanOrEqual(all.length);
      }),
    );
  });

  test('leads to the modes of xterm.js, wherever another terminal joins', async () => {
    const joined = fc.record({ bytes: output, share: fc.double({ min: 0, max: 1, noNaN: true }) });
    await fc.assert(
      fc.asyncProperty(joined, async ({ bytes, share }) => {
        const cut = Math.round(bytes.length * share);
        const { sequences, begun } = scanned(bytes.subarray(0, cut));
        const [first, second] = [new TestScreen(), new TestScreen()];
        await first.write(bytes);
        await second.write(Buffer.from(sequences + begun, 'latin1'));
        await second.write(bytes.subarray(cut));
        expect(second.modes).toEqual(first.modes);
      }),
    );
  });
});

test('an endless sequence takes no memory, and ends with the next one', () => {
  const modes = new ScreenModes();
  const piece = Buffer.alloc(64 * 1024, '1;');
  for (const head of ['\x1b[?', '\x1b]0;', '\x1bP']) {
    modes.scan(Buffer.from(head));
    for (let count = 0; count < 200; count++) modes.scan(piece);
    expect(modes.begun.length).toBe(128);
  }
  modes.scan(Buffer.from('\x1b[?25l'));
  expect([modes.sequences, modes.begun]).toEqual(['\x1b[?25l', '']);
});
