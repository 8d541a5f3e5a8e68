import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import {
  type Operation,
  type Parameter,
  readOperations,
  type Schema,
  violation,
} from '../../support/code/openapi.ts';
import { READ } from '../../support/code/openapi-shapes.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

/* The document and the routes tell the same: operations, parameters, statuses, and the shape of each answer. */

const ROUTES = fileURLToPath(new URL('../../../src/daemon/http/', import.meta.url));
const EXTENSIONS = fileURLToPath(new URL('../../../src/daemon/extensions/', import.meta.url));
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'];

let daemon: TestDaemon;
let operations: Operation[];
beforeAll(async () => {
  operations = readOperations();
  // /proc cannot be frozen, and without cgroups nothing else is: these operations are refused here.
  daemon = await startDaemon({ args: ['--no-cgroups', '--fsfreeze-path=/proc'] });
});
afterAll(() => daemon[Symbol.asyncDispose]());
// Relative paths of RPCs lead there.
beforeEach(async () => {
  const settings = JSON.stringify({ defaultUser: 'root', defaultWorkdir: daemon.scratch });
  expect((await fetch(`${daemon.url}/init`, { method: 'POST', body: settings })).status).toBe(204);
});

const sources = () =>
  [ROUTES, EXTENSIONS]
    .flatMap((folder) =>
      readdirSync(folder, { recursive: true, encoding: 'utf8' })
        .filter((name) => name.endsWith('.ts'))
        .map((name) => readFileSync(join(folder, name), 'utf8')),
    )
    .join('\n');

const urlOf = (path: string) => new URL(path.replaceAll(/\{\w+\}/g, '1'), daemon.url);

const sorted = (names: Iterable<string>) => [...new Set(names)].sort();

test('every method of the document is served, and no other', async () => {
  for (const path of new Set(operations.map((operation) => operation.path))) {
    const told = operations.filter((operation) => operation.path === path).map(({ method }) => method);
    const answered = told.includes('GET') ? [...told, 'HEAD'] : told;
    const refused = METHODS.filter((method) => !answered.includes(method));
    for (const method of refused) {
      const response = await fetch(urlOf(path), { method });
      expect([path, method, response.status]).toEqual([path, method, 405]);
      expect(response.headers.get('allow')?.split(', ')).toEqual(
        METHODS.filter((one) => answered.includes(one)),
      );
    }
  }
});

/** Without what is only for readers. */
function bare(schema: Schema): Schema {
  return JSON.parse(
    JSON.stringify(schema, (name, value) => (['description', 'examples'].includes(name) ? undefined : value)),
  );
}

test('queries and JSON bodies are read by the schemas of the document', () => {
  for (const { operationId, parameters, requestBody } of operations) {
    const { query, body } = READ[operationId] ?? {};
    const told = parameters.filter((one) => one.in === 'query').map(({ name, schema }) => [name, schema]);
    const properties = bare(Object.fromEntries(told));
    expect([operationId, bare(query?.schema.properties ?? {})]).toEqual([operationId, properties]);
    const json = requestBody?.content['application/json']?.schema;
    // Null counts as an empty object before the schema is applied.
    const nullable = { anyOf: [body?.schema, { type: 'null' }] };
    const read = operationId === 'init' ? nullable : (body?.schema ?? null);
    expect([operationId, read]).toEqual([operationId, json ? bare(json) : null]);
  }
});

test('no route reads a query in another way', () => {
  const all = sources();
  const checked = all.match(/_QUERY\.read\(request\.query, ''\)/g) ?? [];
  expect(all.match(/request\.query\b/g)).toHaveLength(checked.length);
  expect(all).not.toMatch(/\{[^{}]*\bquery\b[^{}]*\}(?:: FastifyRequest| = request\b)/);
});

test('every header of the document is read', () => {
  const code = sources().toLowerCase();
  const told = operations.flatMap(({ parameters }) => parameters.filter((one) => one.in === 'header'));
  const unread = told.filter(({ name }) => {
    const key = name.toLowerCase().replace('-example', '-');
    return !code.includes(`'${key}'`) && !code.includes(`headers.${key}`);
  });
  expect(unread.map(({ name }) => name)).toEqual([]);
});

/** A status, and a request that is answered with it. */
type Example = readonly [status: number, path: string, init?: RequestInit];

const JSON_BODY = (body: unknown): RequestInit => ({ body: JSON.stringify(body) });
const RAW = { 'content-type': 'application/octet-stream' };
const FILE = '/files?path=/etc/passwd';
/** Relative paths of files lead to the user's home. */
const OWN = join(tmpdir(), `envd-openapi-${process.pid}`);
afterAll(() => rmSync(OWN, { recursive: true, force: true }));

/** What each operation answers, as far as one request shows it. */
const EXAMPLES: Readonly<Record<string, readonly Example[]>> = {
  getHealth: [
    [204, '/health'],
    [200, '/health?verbose'],
  ],
  getMetrics: [
    [200, '/metrics'],
    [400, '/metrics?pressure=5'],
  ],
  readMetricsHistory: [[200, '/metrics/history']],
  followMetrics: [[400, '/metrics/stream?interval=0']],
  exec: [
    [200, '/exec', JSON_BODY({ cmd: 'true', cwd: '/' })],
    [400, '/exec', JSON_BODY({})],
    [404, '/exec', JSON_BODY({ cmd: 'no-such-program', cwd: '/' })],
  ],
  stopProcess: [
    [400, '/processes/1/stop', JSON_BODY({ graceMs: -1 })],
    [404, '/processes/999999999/stop'],
    [413, '/processes/1/stop', { body: ' '.repeat(5000) }],
  ],
  readResult: [[404, '/processes/999999999/result']],
  readOutput: [
    [400, '/processes/1/output?from=x'],
    [404, '/processes/999999999/output'],
  ],
  getEnvs: [[200, '/envs']],
  getPorts: [[200, '/ports']],
  waitForPort: [
    [400, '/ports/0/wait'],
    [504, '/ports/1/wait?timeoutMs=1'],
  ],
  openTunnel: [[426, '/ports/1/tunnel']],
  openTerminal: [[426, '/terminal']],
  init: [
    [204, '/init', JSON_BODY({})],
    [400, '/init', JSON_BODY(5)],
    [413, '/init', { body: ' '.repeat(100_000) }],
  ],
  downloadFile: [
    [200, FILE],
    [206, FILE, { headers: { range: 'bytes=0-1' } }],
    [304, FILE, { headers: { 'if-none-match': '*' } }],
    [400, '/files?path=/etc'],
    [404, '/files?path=/none'],
    [406, FILE, { headers: { 'accept-encoding': 'identity;q=0' } }],
    [412, FILE, { headers: { 'if-match': '"x"' } }],
    [416, FILE, { headers: { range: 'bytes=99999999-' } }],
  ],
  describeFile: [
    [200, FILE],
    [304, FILE, { headers: { 'if-none-match': '*' } }],
    [400, '/files?path=/etc'],
    [404, '/files?path=/none'],
    [406, FILE, { headers: { 'accept-encoding': 'identity;q=0' } }],
    [412, FILE, { headers: { 'if-match': '"x"' } }],
  ],
  uploadFiles: [
    [200, `/files?path=${OWN}/a`, { headers: RAW, body: 'a' }],
    [400, '/files', { headers: RAW, body: 'a' }],
    [404, '/files?path=/proc/none/a', { headers: RAW, body: 'a' }],
  ],
  composeFiles: [
    [200, '/files/compose', JSON_BODY({ source_paths: [`${OWN}/a`], destination: `${OWN}/b` })],
    [400, '/files/compose', JSON_BODY({})],
    [404, '/files/compose', JSON_BODY({ source_paths: ['/none'], destination: `${OWN}/b` })],
    [413, '/files/compose', { body: ' '.repeat(2_000_000) }],
  ],
  freeze: [
    [400, '/freeze?mode=x'],
    [412, '/freeze'],
  ],
  unfreeze: [[204, '/unfreeze']],
  collapse: [[200, '/collapse']],
  freezeFilesystem: [[412, '/fsfreeze']],
  thawFilesystem: [[204, '/fsthaw']],
};

/** Statuses that need more than one request: the tests that show them. */
const ELSEWHERE: Readonly<Record<string, readonly string[]>> = {
  'test/attack/daemon/bodies.test.ts': ['init 408', 'composeFiles 408'],
  'test/daemon/extensions/usage.test.ts': ['followMetrics 200'],
  'test/daemon/extensions/ports.test.ts': ['followPorts 200', 'waitForPort 200'],
  'test/attack/extensions/websockets.test.ts': [
    ...['openTunnel 101', 'openTunnel 400', 'openTunnel 429'],
    ...['openTerminal 101', 'openTerminal 400', 'openTerminal 429'],
  ],
  'test/daemon/extensions/stop.test.ts': ['stopProcess 200', 'stopProcess 412'],
  'test/daemon/extensions/lasting-output.test.ts': [
    ...['readResult 200', 'readOutput 200', 'readOutput 206', 'readOutput 416'],
  ],
  'test/attack/extensions/exec.test.ts': ['exec 413', 'exec 429', 'exec 503'],
  'test/attack/files/hung-mounts.test.ts': [
    ...['downloadFile 504', 'describeFile 504', 'uploadFiles 504', 'composeFiles 504', 'init 504'],
  ],
  'test/attack/files/downloads.test.ts': ['downloadFile 429', 'describeFile 429'],
  'test/attack/files/uploads.test.ts': ['uploadFiles 413'],
  'test/daemon/files/full-disk.test.ts': ['uploadFiles 507', 'composeFiles 507'],
  'test/daemon/files/changes.test.ts': ['uploadFiles 412'],
  'test/daemon/http/errno.test.ts': ['composeFiles 412', 'init 412'],
  'test/daemon/guest/fsfreeze.test.ts': [
    ...['uploadFiles 503', 'composeFiles 503', 'freeze 503', 'collapse 503', 'freezeFilesystem 503'],
    ...['thawFilesystem 503', 'freezeFilesystem 204', 'upgrade 503'],
  ],
  'test/daemon/life/server.test.ts': ['freeze 200', 'freeze 204'],
  'test/daemon/files/metadata.test.ts': ['init 503'],
  'test/daemon/guest/certificates.test.ts': ['init 507'],
  'test/daemon/life/upgrade.test.ts': ['upgrade 202', 'upgrade 400', 'upgrade 412'],
  'test/daemon/life/succession.test.ts': ['upgrade 429'],
  'test/daemon/files/compose.test.ts': ['composeFiles 403'],
  'test/daemon/process/without-root.test.ts': ['uploadFiles 403', 'downloadFile 403', 'describeFile 403'],
};

/** Needs many callers, others that change the same file, or a broken device: no test of its own shows them. */
const NOT_SHOWN = [
  ...['init 429', 'uploadFiles 429', 'composeFiles 429', 'uploadFiles 409', 'composeFiles 409'],
  ...['followMetrics 429', 'stopProcess 429', 'stopProcess 408', 'stopProcess 503', 'stopProcess 504'],
  ...['exec 403', 'exec 504', 'readOutput 409', 'readOutput 429'],
  // The kernels of the tests tell which sockets listen.
  ...['followPorts 412', 'followPorts 429', 'waitForPort 412', 'waitForPort 429'],
];

test('every status of the document is shown, and what is shown is in the document', async () => {
  const told = operations.flatMap(({ operationId, responses }) =>
    Object.keys(responses).map((status) => `${operationId} ${status}`),
  );
  const refused = told.filter((one) => one.endsWith(' 401'));
  const here = Object.entries(EXAMPLES).flatMap(([id, all]) => all.map(([status]) => `${id} ${status}`));
  const shown = [...here, ...Object.values(ELSEWHERE).flat(), ...NOT_SHOWN, ...refused];
  expect(sorted(shown)).toEqual(sorted(told));
  for (const [file, all] of Object.entries(ELSEWHERE)) {
    const source = readFileSync(join(ROUTES, '../../..', file), 'utf8');
    for (const one of all)
      expect([file, one, source.includes(one.split(' ')[1] ?? '')]).toEqual([file, one, true]);
  }
});

test('the examples are answered so', async () => {
  for (const { operationId, method } of operations)
    for (const [status, path, init] of EXAMPLES[operationId] ?? []) {
      const response = await fetch(daemon.url + path, { ...init, method });
      expect([operationId, path, response.status]).toEqual([operationId, path, status]);
    }
});

test('every operation is refused without the token, as the document tells', async () => {
  await using guarded = await startDaemon({ args: ['--no-cgroups', '--fsfreeze-path=/proc'] });
  const body = JSON.stringify({ accessToken: 't0ken' });
  expect((await fetch(`${guarded.url}/init`, { method: 'POST', body })).status).toBe(204);
  for (const { operationId, method, path, responses } of operations) {
    const init = method === 'POST' ? { method, body: '{}', headers: RAW } : { method };
    const query = operationId === 'getHealth' ? '?verbose' : '';
    const { status } = await fetch(guarded.url + path.replaceAll(/\{\w+\}/g, '1') + query, init);
    expect([operationId, status, '401' in responses]).toEqual([operationId, 401, true]);
  }
});

/** Values for a schema, and some that are none. */
function valuesOf(schema: Schema): fc.Arbitrary<unknown> {
  return fc.oneof({ weight: 5, arbitrary: validOf(schema) }, { weight: 1, arbitrary: fc.jsonValue() });
}

function validOf(schema: Schema): fc.Arbitrary<unknown> {
  if (schema.enum) return fc.constantFrom(...schema.enum);
  if (schema.type === 'boolean') return fc.boolean();
  if (schema.type === 'integer')
    return fc.oneof(fc.integer(), fc.maxSafeInteger(), fc.constantFrom(0, -1, 1));
  if (schema.type === 'array') return fc.array(valuesOf(schema.items ?? {}), { maxLength: 3 });
  if (schema.type !== 'object') return text;
  const { properties = {}, required = [], additionalProperties } = schema;
  if (additionalProperties) return fc.dictionary(text, valuesOf(additionalProperties), { maxKeys: 3 });
  const members = Object.entries(properties).map(
    ([name, one]) => [name, MEMBERS[name] ?? valuesOf(one)] as const,
  );
  const shape: Record<string, fc.Arbitrary<unknown>> = Object.fromEntries(members);
  return fc.oneof(
    fc.record(shape, { requiredKeys: [...required] }),
    fc.record(shape, { requiredKeys: [] }),
    fc.record({ ...shape, more: fc.jsonValue() }, { requiredKeys: [] }),
  );
}

const scratchPath = () =>
  fc.stringMatching(/^[a-z]{1,3}(\/[a-z.]{1,3}){0,2}$/).map((name) => `${daemon.scratch}/fuzz/${name}`);

/** Of what is written, and of what a composition removes. */
const written = fc.oneof(fc.constantFrom('', '/proc/none/a'), scratchPath());

/** What would change the machine that runs the tests, or lock the test out, only in values that are refused. */
const MEMBERS: Readonly<Record<string, fc.Arbitrary<unknown>>> = {
  cmd: fc.constantFrom('true', '/bin/true', '/none', '', 5),
  source_paths: fc.oneof(fc.array(written, { maxLength: 3 }), fc.constantFrom(5, [5], {})),
  destination: fc.oneof(written, fc.constantFrom(5, null, [])),
  accessToken: fc.constantFrom('', null, 5, []),
  defaultUser: fc.constantFrom('', 'root', 5, 'nobody-at-all'),
  defaultWorkdir: fc.constantFrom('', 5, []),
  timestamp: fc.constantFrom('', 'now', '2026-02-30T00:00:00Z', 5, {}),
  caBundle: fc.constantFrom('', 'no certificate', 5),
  hyperloopIP: fc.constantFrom('', 'localhost', '::g', 5),
  volumeMounts: fc.constantFrom(
    [],
    5,
    [{}],
    [{ nfs_target: '', path: '/a' }],
    [{ nfs_target: 'a:/b', path: 5 }],
  ),
};

const text = fc.oneof(
  fc.string({ maxLength: 20 }),
  fc.string({ unit: 'binary', maxLength: 20 }),
  fc.constantFrom(
    '',
    '/',
    '~',
    '~/a',
    '~other',
    '..',
    '/etc/passwd',
    '/proc/self/maps',
    '/dev/null',
    'a b',
    '\0',
    'x'.repeat(300),
  ),
);

/** Paths of the test's own for what writes; any user. */
const parameterOf = (operation: Operation, { name, schema }: Parameter): fc.Arbitrary<string> => {
  if (name === 'path' && operation.method === 'POST')
    return fc.oneof(fc.constantFrom('', '/proc/none/a', `${daemon.scratch}`), scratchPath());
  if (name === 'path')
    return fc.oneof(
      fc.constantFrom('/etc/passwd', '/proc/self/maps', '/dev/null', '~other', '\0', daemon.scratch),
      text.map((some) => `${daemon.scratch}/${some.replaceAll('..', '')}`),
    );
  if (name === 'username') return fc.oneof(fc.constantFrom('', 'root', 'nobody'), text);
  return valuesOf(schema).map((value) => (typeof value === 'string' ? value : JSON.stringify(value)));
};

const headerValue = fc.oneof(
  fc.stringMatching(/^[ -~]{0,30}$/),
  fc.constantFrom(
    'gzip',
    'bytes=0-1',
    'bytes=5-',
    'bytes=9-1',
    '*',
    '"a"',
    'sha-256=1',
    'identity;q=0',
    'Thu, 01 Jan 1970 00:00:00 GMT',
  ),
);

interface Sent {
  readonly query: Readonly<Record<string, string | undefined>>;
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly body: string | Uint8Array<ArrayBuffer>;
}

function requestsFor(operation: Operation): fc.Arbitrary<Sent> {
  const queries = operation.parameters.filter((one) => one.in === 'query');
  const headers = operation.parameters.filter((one) => one.in === 'header');
  const types = Object.keys(operation.requestBody?.content ?? {});
  const json = operation.requestBody?.content['application/json']?.schema;
  const record = (names: Parameter[], values: (one: Parameter) => fc.Arbitrary<string>) =>
    fc.record(Object.fromEntries(names.map((one) => [one.name, values(one)])), { requiredKeys: [] });
  return fc.record({
    query: record(queries, (one) => parameterOf(operation, one)),
    headers: fc
      .tuple(
        record(headers, () => headerValue),
        fc.option(
          fc.constantFrom(
            ...types,
            'text/plain',
            '',
            'application/json; charset=x',
            'multipart/form-data; boundary=b',
          ),
        ),
      )
      .map(([some, type]) => ({ ...some, ...(type !== null && { 'content-type': type }) })),
    body: json
      ? bodiesOf(json)
      : fc.oneof(
          multipart,
          fc.uint8Array({ maxLength: 2000 }).map((bytes) => new Uint8Array(bytes)),
        ),
  });
}

const bodiesOf = (schema: Schema): fc.Arbitrary<string> =>
  fc.oneof(
    { weight: 6, arbitrary: validOf(schema).map((value) => JSON.stringify(value)) },
    { weight: 1, arbitrary: fc.json() },
    { weight: 1, arbitrary: fc.string() },
  );

const multipart = fc
  .array(fc.tuple(fc.constantFrom('file', 'other', ''), text, fc.string()), { maxLength: 3 })
  .map((parts) =>
    [
      ...parts.map(
        ([name, , content]) =>
          `--b\r\nContent-Disposition: form-data; name="${name}"; filename="envd-fuzz"\r\n\r\n${content}\r\n`,
      ),
      '--b--\r\n',
    ].join(''),
  );

/** The most that an answer may take; some operations have limits of 10 s and less. */
const HANG_MS = 120_000;
const RUNS = Number(process.env.ENVD_FUZZ_RUNS ?? 40);

/** What is wrong with the answer, or null. */
async function wrongIn(operation: Operation, response: Response): Promise<string | null> {
  const { status } = response;
  const body = operation.method === 'HEAD' ? '' : await response.text();
  const told = operation.responses[status];
  if (status === 500 || !told) return `${status} ${body.slice(0, 300)} is not in the document`;
  if (operation.method === 'HEAD') return null;
  if (!told.content || status === 204 || status === 304)
    return body === '' ? null : `${status} has a body: ${body.slice(0, 100)}`;
  const type = (response.headers.get('content-type') ?? '').split(';', 1)[0] ?? '';
  const schema = told.content[type]?.schema;
  // A file has the type of its name.
  if (operation.operationId === 'downloadFile' && response.ok) return null;
  if (!schema) return `${status} is of type ${type}`;
  return type === 'application/json' ? violation(schema, JSON.parse(body)) : null;
}

// Not `upgrade`, which would replace the daemon, and what has no end or waits: they have tests of their own.
const FUZZED = [
  ...['getHealth', 'getMetrics', 'getEnvs', 'getPorts', 'init', 'exec', 'stopProcess', 'composeFiles'],
  ...['readResult', 'readOutput'],
  ...['downloadFile', 'describeFile', 'uploadFiles', 'openTerminal', 'openTunnel', 'readMetricsHistory'],
  ...['freeze', 'unfreeze', 'collapse', 'freezeFilesystem', 'thawFilesystem'],
];

describe(`${RUNS} requests by the document (ENVD_FUZZ_RUNS) are answered as it tells`, () => {
  test('all operations are listed here', () => {
    expect(sorted(operations.map(({ operationId }) => operationId))).toEqual(
      sorted([...FUZZED, 'upgrade', 'followMetrics', 'followPorts', 'waitForPort']),
    );
  });

  test.each(FUZZED)('%s', async (id) => {
    const operation = operations.find(({ operationId }) => operationId === id);
    if (!operation) throw new Error(`no operation ${id}`);
    const answer = async ({ query, headers, body }: Sent) => {
      const url = urlOf(operation.path);
      for (const [name, value] of Object.entries(query))
        if (value !== undefined) url.searchParams.set(name, value);
      const sent = Object.entries(headers).flatMap(([name, value]) =>
        value === undefined ? [] : [[name, value] as const],
      );
      const response = await fetch(url, {
        method: operation.method,
        headers: Object.fromEntries(sent),
        signal: AbortSignal.timeout(HANG_MS),
        ...(operation.method === 'POST' && { body }),
      });
      return wrongIn(operation, response);
    };
    await fc.assert(
      fc.asyncProperty(requestsFor(operation), async (sent) => {
        expect(await answer(sent)).toBeNull();
      }),
      // Each collapse makes calls of its own.
      { numRuns: id === 'collapse' ? Math.ceil(RUNS / 10) : RUNS },
    );
    expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
  });
});
