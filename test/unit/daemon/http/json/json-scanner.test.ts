import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type JsonLimits, JsonScanner } from '../../../../../src/daemon/http/json/json-scanner.ts';

const NAME = 'caBundle';
/** Names similar to the counted one, and strings with all that ends or escapes strings. */
const names = fc.oneof(fc.constantFrom(NAME, 'caBundl', 'caBundleX', `\\${NAME}`, `"${NAME}`), fc.string());
const strings = fc.oneof(fc.string(), fc.stringMatching(/^[\\"{}[\]:,x]*$/), names);
const { value: values } = fc.letrec((tie) => ({
  value: fc.oneof({ maxDepth: 4 }, strings, fc.integer(), fc.constant(null), tie('list'), tie('object')),
  list: fc.array(tie('value'), { maxLength: 4 }),
  object: fc.dictionary(names, tie('value'), { maxKeys: 4 }),
}));
const bodies = fc.oneof(fc.dictionary(names, values, { maxKeys: 6 }), values);

/** The counts that the scanner should reach. */
function countsOf(body: unknown, text: string): { bytes: number; large: number; containers: number } {
  const isObject = typeof body === 'object' && body !== null && !Array.isArray(body);
  const member = isObject && Object.hasOwn(body, NAME) ? (body as Record<string, unknown>)[NAME] : null;
  // Including the closing quote.
  const large = typeof member === 'string' ? Buffer.byteLength(JSON.stringify(member)) - 1 : 0;
  return { bytes: Buffer.byteLength(text) - large, large, containers: containersIn(body) };
}

function containersIn(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  return 1 + Object.values(value).reduce((sum: number, member) => sum + containersIn(member), 0);
}

function accepts(limits: JsonLimits, text: string, cuts: readonly number[]): boolean {
  const bytes = Buffer.from(text);
  const ends = [...cuts.map((cut) => Math.floor(cut * bytes.length)), bytes.length].sort((a, b) => a - b);
  const scanner = new JsonScanner(limits);
  let start = 0;
  try {
    for (const end of ends) {
      scanner.add(bytes.subarray(start, end));
      start = end;
    }
    return true;
  } catch (error) {
    expect(error).toMatchObject({ statusCode: 413 });
    return false;
  }
}

test('the counts match the parsed JSON, however the text is split', () => {
  const cuts = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 6 });
  const check = (body: unknown, spaces: number, where: readonly number[]) => {
    const text = JSON.stringify(body, null, spaces);
    const { bytes, large, containers } = countsOf(body, text);
    const just: JsonLimits = { bytes, large: { name: NAME, bytes: large }, containers };
    expect(accepts(just, text, where)).toBe(true);
    expect(accepts({ ...just, bytes: bytes - 1 }, text, where)).toBe(false);
    expect(accepts({ ...just, containers: containers - 1 }, text, where)).toBe(false);
    expect(accepts({ ...just, large: { name: NAME, bytes: large - 1 } }, text, where)).toBe(false);
    expect(accepts({ bytes: bytes + large, large: null, containers }, text, where)).toBe(true);
  };
  fc.assert(fc.property(bodies, fc.constantFrom(0, 2), cuts, check), { numRuns: 1000 });
});

test.each([
  `{"${NAME}":"xxxx","${NAME}":"xxxx"}`,
  `["${NAME}":"xxxxxxxx"`,
  `{"${NAME}":"xx" "xxxxxx"`,
  `{"${NAME}":"xxxxxxxx`,
])('the sizes of large members are added up, also in invalid JSON: %s', (text) => {
  const limits = (large: number) => ({ bytes: 100, large: { name: NAME, bytes: large }, containers: 2 });
  expect(accepts(limits(7), text, [])).toBe(false);
  expect(accepts(limits(20), text, [])).toBe(true);
});
