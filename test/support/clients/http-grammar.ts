import fc from 'fast-check';

/** Pieces of HTTP, valid, almost valid and invalid, as latin1 strings, for fuzz tests of both sides. */
type Bytes = fc.Arbitrary<string>;

const anyByte = fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code));
const anyBytes = fc.string({ unit: anyByte, maxLength: 30 });
const text = fc.string({ maxLength: 20 });
const pick = (...values: readonly string[]) => fc.constantFrom(...values);

const version = fc.oneof(
  { weight: 8, arbitrary: pick('HTTP/1.1') },
  { weight: 2, arbitrary: pick('HTTP/1.0') },
  { weight: 1, arbitrary: pick('HTTP/0.9', 'HTTP/2.0', 'HTTP/1.2', 'HTTP/1', 'http/1.1', 'ICY', '') },
);

const length = pick('0', '2', '5', '6', '100', '-1', '0x2', '5, 5', '', '99999999999999999999', '5\x0b');
const coding = pick(
  'chunked',
  'Chunked',
  ' chunked ',
  'gzip',
  'gzip, chunked',
  'chunked, gzip',
  'identity',
  '',
  'x',
);
const connection = pick(
  'close',
  'keep-alive',
  'upgrade',
  'x-own',
  'trailer',
  'content-length, close',
  ', ,',
  '',
);

/** Headers that frame a message or are hop-by-hop, and others. */
const header: Bytes = fc.oneof(
  { weight: 3, arbitrary: length.map((value) => `content-length: ${value}`) },
  { weight: 3, arbitrary: coding.map((value) => `Transfer-Encoding: ${value}`) },
  { weight: 3, arbitrary: pick('trailer: x-sum', 'Trailer:', 'trailer: content-length, x-sum') },
  { weight: 2, arbitrary: connection.map((value) => `Connection: ${value}`) },
  { weight: 2, arbitrary: pick('upgrade: websocket', 'Upgrade: h2c', 'upgrade:') },
  { weight: 1, arbitrary: pick('expect: 100-continue', 'te: trailers', 'keep-alive: timeout=1', 'date:') },
  { weight: 1, arbitrary: pick('set-cookie: a=b', '__proto__: a', 'constructor: a', 'x-own: a\r\n b') },
  {
    weight: 1,
    arbitrary: fc.tuple(pick('x-own', 'x own', '', ':', 'é'), anyBytes).map((pair) => pair.join(': ')),
  },
  {
    weight: 1,
    arbitrary: fc.integer({ min: 1, max: 400 }).map((count) => `x-long: ${'a'.repeat(count * 100)}`),
  },
);
const headers = fc.array(header, { maxLength: 5 });

const body: Bytes = fc.oneof(
  pick('', 'hello', 'hi', '5\r\nhello\r\n0\r\n\r\n', '5;a=b\r\nhello\r\n0\r\nx-sum: 1\r\n\r\n'),
  pick(
    '0\r\nx sum: 1\r\n\r\n',
    '0\r\nx-sum: \x01\r\n\r\n',
    '5\r\nhell',
    'ffffffffffffffff\r\n',
    '-1\r\n\r\n',
  ),
  anyBytes,
);

const reason = fc.oneof(pick('OK', '', 'O\tK', 'O\x01K', '\x7f', 'é'), text, anyBytes);
const status = fc.oneof(
  { weight: 6, arbitrary: pick('200', '204', '304', '205', '206', '301', '404', '500', '999') },
  { weight: 2, arbitrary: pick('100', '101', '102', '103', '199') },
  { weight: 2, arbitrary: fc.integer({ min: -1, max: 1001 }).map((code) => String(code).padStart(3, '0')) },
  { weight: 1, arbitrary: pick('', '0', '99', '2 0', '2000', '\x00') },
);

const message = (line: Bytes): Bytes =>
  fc
    .tuple(line, headers, body)
    .map(([first, lines, rest]) => `${[first, ...lines].join('\r\n')}\r\n\r\n${rest}`);

/** Responses of a sandbox: heads, provisional and final. */
const answers = fc
  .array(message(fc.tuple(version, status, reason).map((parts) => parts.join(' '))), {
    minLength: 1,
    maxLength: 3,
  })
  .map((messages) => messages.join(''));

const method = fc.oneof(
  { weight: 5, arbitrary: pick('GET', 'POST', 'HEAD') },
  { weight: 1, arbitrary: pick('PUT', 'DELETE', 'OPTIONS', 'TRACE', 'PRI', 'M-SEARCH', 'get', '') },
);
const target = fc.oneof(
  { weight: 5, arbitrary: pick('/', '/sandboxes', '/sandboxes/one', '/gateway/health', '/init', '/a?b#c') },
  { weight: 1, arbitrary: pick('*', '//', 'http://a/b', 'ftp://a', '/%', '/\xff', 'a:1', '') },
  { weight: 1, arbitrary: anyBytes },
);
const naming = pick('svc-sandbox-id: one', 'svc-sandbox-id: one', 'svc-sandbox-id: nobody', 'x-none: a');
const requestLine = fc
  .tuple(method, target, version, naming)
  .map(([verb, path, protocol, sandbox]) => `${verb} ${path} ${protocol}\r\nhost: a\r\n${sandbox}`);

/** Requests of a client on one connection. */
const requests = fc.array(message(requestLine), { minLength: 1, maxLength: 3 }).map((all) => all.join(''));

/** A mutation: a part of the bytes is removed, doubled, or replaced. */
const mutation = fc.tuple(
  fc.nat(),
  fc.nat({ max: 20 }),
  fc.constantFrom('drop', 'double', 'replace'),
  anyBytes,
);

function mutate(bytes: string, [where, count, how, by]: readonly [number, number, string, string]): string {
  const at = bytes.length === 0 ? 0 : where % bytes.length;
  const piece = bytes.slice(at, at + count);
  const middle = how === 'drop' ? '' : how === 'double' ? piece + piece : by;
  return bytes.slice(0, at) + middle + bytes.slice(at + count);
}

/** Half of them are not mutated. */
const mutated = (bytes: Bytes): Bytes =>
  fc
    .tuple(bytes, fc.oneof(fc.constant([]), fc.array(mutation, { minLength: 1, maxLength: 3 })))
    .map(([whole, mutations]) => mutations.reduce(mutate, whole));

/** The same bytes in pieces that are sent one after the other. */
const pieces = (bytes: Bytes): fc.Arbitrary<readonly string[]> =>
  fc.tuple(bytes, fc.array(fc.nat(), { maxLength: 3 })).map(([whole, cuts]) => {
    const places = cuts.map((cut) => cut % (whole.length + 1)).toSorted((a, b) => a - b);
    return [...places, whole.length].map((place, index) => whole.slice(places[index - 1] ?? 0, place));
  });

export const anyAnswer = pieces(mutated(answers));
export const anyRequest = pieces(mutated(requests));
