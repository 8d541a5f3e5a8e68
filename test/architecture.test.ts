import { globSync, readdirSync, readFileSync } from 'node:fs';
import { builtinModules } from 'node:module';
import { dirname, join, matchesGlob, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { circlesOf, graphOf } from './support/code/circles.ts';
import { moduleState } from './support/code/module-state.ts';

const TOP = fileURLToPath(new URL('..', import.meta.url));
const ROOT = join(TOP, 'src');

/**
 * The four programs over their common base. A program uses itself and the base, and none uses another. The conformance suite, which
 * envctl runs, knows a daemon by its wire format alone.
 */
const BASE = ['base', 'gen', 'conformance'];

/** The layers of each program, the lowest first. A folder may use the layers below, and itself. */
const LAYERS: Readonly<Record<string, readonly (readonly string[])[]>> = {
  daemon: [['linux'], ['services'], ['http'], ['config'], ['extensions'], ['wiring'], ['run'], ['main']],
  gateway: [
    ['leases', 'access'],
    ['registry', 'hooks'],
    ['proxy'],
    ['routes', 'expiry'],
    ['api'],
    ['metrics'],
    ['config'],
    ['open'],
    ['compose'],
    ['run'],
    ['main'],
  ],
  cli: [
    ['output'],
    ['connection'],
    ['terminal'],
    ['process', 'transfer'],
    ['console', 'mcp'],
    ['commands'],
    ['main'],
  ],
  kubernetes: [
    ['pods'],
    ['cluster'],
    ['machines'],
    ['hooks'],
    ['config', 'metrics'],
    ['compose'],
    ['run'],
    ['main'],
  ],
};

/** The only place that may import a package, so that the package can be replaced there. */
const OWNERS: Record<string, RegExp> = {
  chokidar: /^daemon\/linux\/inotify\/polled-watch\.ts$/,
  commander: /^(base\/program\/settings|cli\/(commands\/(parse|spec\/parsers)|process\/signals))\.ts$/,
  pino: /^(base|daemon|gateway|kubernetes)\/.+\.ts$/,
  'prom-client':
    /^(daemon\/extensions\/prometheus\/metrics-page|gateway\/(metrics|routes\/request-times)|kubernetes\/metrics)\.ts$/,
  fastify:
    /^(daemon\/http\/((server|routes|extension|rpc\/mount|websocket\/upgrades)|(admission|rest)\/.+)|daemon\/extensions\/.+|gateway\/api\/.+)\.ts$/,
  httpxy: /^gateway\/proxy\/proxy\.ts$/,
  '@kubernetes/client-node': /^kubernetes\/(pods|cluster|machines)\/.+\.ts$/,
  yaml: /^kubernetes\/pods\/template\.ts$/,
  '@redis/client': /^gateway\/registry\/(redis-client|redis-link|redis-scripts|agreement)\.ts$/,
  '@fastify/cors': /^daemon\/http\/admission\/admission\.ts$/,
  '@fastify/busboy': /^daemon\/http\/rest\/.+\.ts$/,
  '@connectrpc/connect':
    /^(daemon\/http\/((protocol|rpc)\/.+|admission\/errors)|cli\/(connection|process|transfer)\/.+|conformance\/.+)\.ts$/,
  '@connectrpc/connect-node': /^(daemon\/http\/protocol\/connect-node|conformance\/suite\/daemon)\.ts$/,
  '@bufbuild/protobuf':
    /^(daemon\/(http\/(protocol|rpc)|extensions)|cli\/(connection|process)|conformance)\/.+\.ts$/,
  ignore: /^(daemon\/extensions\/search\/.+|cli\/transfer\/excludes)\.ts$/,
  'client-zip': /^daemon\/extensions\/zip\/.+\.ts$/,
  'tar-stream': /^cli\/transfer\/.+\.ts$/,
  diff: /^(daemon\/extensions\/search\/.+|cli\/console\/page\/views\/text-differences)\.ts$/,
  'mime-types': /^daemon\/(services\/files|http\/rest)\/.+\.ts$/,
  'content-disposition': /^daemon\/(services\/files|http\/rest)\/.+\.ts$/,
  'range-parser': /^daemon\/(services\/files|http\/rest)\/.+\.ts$/,
  fresh: /^daemon\/(services\/files|http\/rest)\/.+\.ts$/,
  ws: /^(daemon\/http\/websocket\/(connection|handshake)|cli\/connection\/.+|conformance\/cases\/.+)\.ts$/,
  '@modelcontextprotocol/server': /^cli\/mcp\/.+\.ts$/,
  zod: /^cli\/mcp\/.+\.ts$/,
  preact: /^cli\/console\/page\/.+\.tsx?$/,
  ...Object.fromEntries(
    ['commands', 'search', 'state', 'view'].map((name) => [
      `@codemirror/${name}`,
      /^cli\/console\/page\/views\/text-editor\.ts$/,
    ]),
  ),
  uplot: /^cli\/console\/page\/views\/plot-canvas\.ts$/,
  ...Object.fromEntries(
    [
      ...['xterm', 'addon-fit', 'addon-search', 'addon-serialize', 'addon-unicode11'],
      ...['addon-web-links', 'addon-webgl'],
    ].map((name) => [`@xterm/${name}`, /^cli\/console\/page\/terminals\/screen\.ts$/]),
  ),
  negotiator: /^daemon\/(services\/files|http\/rest|extensions)\/.+\.ts$/,
};

interface Import {
  readonly file: string;
  readonly target: string;
}

const files = globSync('**/*.{ts,tsx}', { cwd: ROOT }).filter((file) => !file.startsWith('gen/'));
const imports = files.flatMap((file) => importsOf(ROOT, file));

function importsOf(root: string, file: string): Import[] {
  const text = readFileSync(join(root, file), 'utf8');
  const specifiers = text.matchAll(/^(?:import|export) (?:[^;]*? from )?'([^']+)'|\bimport\('([^']+)'\)/gm);
  return Array.from(specifiers, ([, target, lazy = '']) => ({ file, target: target ?? lazy }));
}

/** Every import of a file by another, both below src. */
const edges = imports.flatMap(({ file, target }) => {
  if (!target.startsWith('.')) return [];
  const to = normalize(join(dirname(file), target));
  return to.startsWith('..') ? [] : [{ from: file, to }];
});

const programOf = (file: string) => file.split('/')[0] ?? '';
/** The first folder within a program, or the name of a file at its top. */
const topOf = (file: string) => file.split('/')[1]?.replace(/\.tsx?$/, '') ?? '';
const layerOf = (file: string) =>
  (LAYERS[programOf(file)] ?? []).findIndex((folders) => folders.includes(topOf(file)));

/** What the repository has at its top, besides files whose names begin with a dot. */
const LAYOUT = [
  ...['CHANGELOG.md', 'CONTRIBUTING.md', 'Dockerfile', 'LICENSE', 'README.md', 'SECURITY.md'],
  ...['biome.json', 'knip.json', 'package-lock.json', 'package.json', 'tsconfig.json'],
  ...['docs', 'examples', 'native', 'proto', 'src', 'systemd', 'test'],
];

test('the top of the repository has the files of the layout only', () => {
  const ignored = readFileSync(join(TOP, '.gitignore'), 'utf8')
    .split('\n')
    .map((line) => line.replace(/\/$/, ''));
  const others = readdirSync(TOP).filter(
    (name) =>
      !name.startsWith('.') && !LAYOUT.includes(name) && !ignored.some((glob) => matchesGlob(name, glob)),
  );
  expect(others).toEqual([]);
});

test('the source files are found', () => {
  expect(files.length).toBeGreaterThan(200);
  expect(edges.length).toBeGreaterThan(500);
});

describe('layers', () => {
  test('every file is in the base, or in a layer of a program', () => {
    const strangers = files.filter((file) => !BASE.includes(programOf(file)) && layerOf(file) < 0);
    expect(strangers).toEqual([]);
  });

  test('the base imports nothing of the programs', () => {
    expect(edges.filter(({ from, to }) => programOf(from) === 'base' && programOf(to) !== 'base')).toEqual(
      [],
    );
  });

  test('the page of the console imports nothing that needs Node', () => {
    const own = /^cli\/(console\/page\/|output\/(formats|printable|tree)\.ts$|process\/shell-lookup\.ts$)/;
    const page = edges.filter(({ from }) => from.startsWith('cli/console/page/'));
    expect(page.length).toBeGreaterThan(50);
    expect(page.filter(({ to }) => !own.test(to))).toEqual([]);
    expect(edges.filter(({ from, to }) => !own.test(from) && to.startsWith('cli/console/page/'))).toEqual([]);
  });

  test('the conformance suite imports nothing but the generated messages, and one command imports it', () => {
    const own = edges.filter(({ from }) => programOf(from) === 'conformance');
    expect(own.length).toBeGreaterThan(50);
    expect(own.filter(({ to }) => !['conformance', 'gen'].includes(programOf(to)))).toEqual([]);
    const users = edges.filter(
      ({ from, to }) => programOf(to) === 'conformance' && !own.some((edge) => edge.from === from),
    );
    expect([...new Set(users.map(({ from }) => from))]).toEqual(['cli/commands/reach/conformance.ts']);
  });

  test('no program imports another', () => {
    const crossing = edges.filter(
      ({ from, to }) => programOf(to) !== programOf(from) && !BASE.includes(programOf(to)),
    );
    expect(crossing).toEqual([]);
  });

  test('imports go to lower layers: neither up nor to another folder of the same layer', () => {
    const up = edges.filter(({ from, to }) => {
      if (programOf(from) !== programOf(to) || BASE.includes(programOf(from)) || topOf(from) === topOf(to))
        return false;
      return layerOf(to) >= layerOf(from);
    });
    expect(up).toEqual([]);
  });

  test('only rpc, extensions and the command line import the generated messages', () => {
    const known =
      /^(daemon\/(http\/(protocol|rpc)|extensions)|cli\/(connection|process|transfer|mcp|commands)|conformance)\//;
    expect(edges.filter(({ from, to }) => programOf(to) === 'gen' && !known.test(from))).toEqual([]);
  });

  test('an extension can be removed with its folder: one file of wiring imports it, and no other extension', () => {
    const extensionOf = (file: string) => /^daemon\/extensions\/([^/]+)\//.exec(file)?.[1];
    const users = edges.filter(
      ({ from, to }) => extensionOf(to) !== undefined && extensionOf(from) !== extensionOf(to),
    );
    expect(users.length).toBeGreaterThan(0);
    expect([...new Set(users.map(({ from }) => from))]).toEqual(['daemon/wiring/extensions.ts']);
  });
});

describe('import cycles', () => {
  test('the search finds a cycle', () => {
    const graph = new Map([
      ['a', new Set(['b'])],
      ['b', new Set(['c'])],
      ['c', new Set(['b'])],
    ]);
    expect(circlesOf(graph)).toEqual(['b > c > b']);
  });

  test('there is none between files', () => {
    expect(circlesOf(graphOf(edges, (file) => file))).toEqual([]);
  });

  test('there is none between folders', () => {
    expect(circlesOf(graphOf(edges, dirname))).toEqual([]);
  });
});

describe('state of modules', () => {
  test.each([
    ['let tail = Promise.resolve();', ['tail']],
    ['export let [a] = [1];\nvar b;', ['', 'b']],
    ['const open = new Map();\nexport const f = () => open.set(1, 2);', ['open']],
    ['const spare: string[] = [];\nfunction keep() { spare.push(""); }', ['spare']],
    ['const last: { [name: string]: 1 } = {};\nfunction f() { last.x = 1; }', ['last']],
    ['const last = { a: { b: 1 } };\nfunction f() { last.a.b++; }', ['last']],
    ['const last = { list: [1] };\nfunction f() { last.list.push(2); }', ['last']],
    ['const last = { a: 1 };\nfunction f() { delete (last as { a?: number }).a; }', ['last']],
    ['const room = Buffer.alloc(8);', ['room']],
    ['const agent = new Agent({});', ['agent']],
    ['export class A { static count = 0; static readonly B = 1; #open = new Map(); }', ['A.count']],
    ['const known = new Set(["a"]);\nfunction f() { let x = known.has("a"); x = false; return x; }', []],
    ['const table = { a: 1 } as const;\nfunction f() { const open = []; open.push(table.a); }', []],
  ])('the search in %j finds %j', (source, names) => {
    expect(moduleState(source)).toEqual(names);
  });

  test('no module has state: what is shared belongs to an object that is passed on', () => {
    const found = files.flatMap((file) =>
      moduleState(readFileSync(join(ROOT, file), 'utf8'), file.endsWith('x') ? 'tsx' : 'ts').map(
        (name) => `${file}: ${name}`,
      ),
    );
    expect(found).toEqual([]);
  });
});

describe('restricted imports', () => {
  test('services import no HTTP, no Connect and no protobuf', () => {
    // `base/http/client-errors.ts`, `connections.ts`, `pieces.ts` and `websocket.ts` are what the HTTP servers of both programs share.
    const known = /^(fastify|@fastify\/|@connectrpc\/|@bufbuild\/|node:http|.*\/client-errors\.ts)/;
    const below = /^(base\/(?!http\/(client-errors|connections|pieces|websocket)\.ts)|daemon\/services\/)/;
    expect(imports.filter(({ file, target }) => below.test(file) && known.test(target))).toEqual([]);
  });

  test('every package is imported by its owner only', () => {
    const strangers = imports.filter(({ file, target }) => {
      if (target.startsWith('.') || target.startsWith('node:')) return false;
      const name = target
        .split('/')
        .slice(0, target.startsWith('@') ? 2 : 1)
        .join('/');
      return !OWNERS[name]?.test(file);
    });
    expect(strangers).toEqual([]);
    const bare = builtinModules.filter((name) => !name.startsWith('node:'));
    expect(imports.filter(({ target }) => bare.includes(target))).toEqual([]);
  });

  test('one file imports the native addon', () => {
    const doors = imports.filter(({ target }) => target.includes('native/'));
    expect([...new Set(doors.map(({ file }) => file))]).toEqual(['daemon/linux/system/native.ts']);
  });

  test('argv and the environment are read in one file of each program', () => {
    const readers = files.filter((file) =>
      /process\.(argv|env)\b/.test(readFileSync(join(ROOT, file), 'utf8')),
    );
    expect(readers.sort()).toEqual([
      'cli/main.ts',
      'daemon/config/config.ts',
      'gateway/config/config.ts',
      'kubernetes/config/config.ts',
    ]);
  });
});

describe('undocumented API', () => {
  /** Members of Node and of libraries that their documentation does not have. */
  const PRIVATE = [
    ...[/\b_(handle|listen2|storeHeader|httpMessage|events|eventsCount|parent|header|socket)\b/],
    ...[/\b_(readableState|writableState|implicitHeader|send|writeRaw|finish)\b/],
    // A class of one's own overrides them, as documented.
    ...[/(?<!override |this\.)\b_(read|write|writev|transform|flush|destroy|construct|final)\b(?=\s*[=(])/],
    ...[/process\.(binding|_\w+)/, /setFlagsFromString/, /internalBinding/, /getOwnPropertySymbols/],
  ];
  /**
   * The build alone sets flags of V8, in the run whose code it keeps: V8 accepts code only under the flags that were set when it was kept,
   * and that run needs others. No program that ships has this line.
   */
  const BUILD = ['systemd/image/code-cache.ts: setFlagsFromString'];
  const sources = globSync('{src,systemd}/**/*.{ts,tsx,cjs,mjs,js}', { cwd: TOP }).filter(
    (file) => !file.startsWith('src/gen/'),
  );
  /** The code of a file, without comments. */
  const codeOf = (text: string) => text.replace(/\/\*[\s\S]*?\*\/|(^|\s)\/\/.*$/gm, '');
  const privateIn = (code: string) => PRIVATE.flatMap((name) => name.exec(code)?.[0] ?? []);

  test.each([
    ['socket._handle.fd', ['_handle']],
    ['request._read = () => {};', ['_read']],
    ['class A { override _read(): void {} }', []],
    ['// socket._handle is private.', []],
    ['process.binding("fs"); v8.setFlagsFromString("--x")', ['process.binding', 'setFlagsFromString']],
    ['const { event_read, a_handle } = b;', []],
  ])('the search in %j finds %j', (code, names) => {
    expect(privateIn(codeOf(code))).toEqual(names);
  });

  test('is not used', () => {
    expect(sources.length).toBeGreaterThan(200);
    const found = sources.flatMap((file) =>
      privateIn(codeOf(readFileSync(join(TOP, file), 'utf8'))).map((name) => `${file}: ${name}`),
    );
    expect(found).toEqual(BUILD);
  });

  test('types are overridden only where this list says why', () => {
    const overridden = files.filter((file) =>
      /\bas (unknown|any|never) as\b/.test(codeOf(readFileSync(join(ROOT, file), 'utf8'))),
    );
    expect(overridden.sort()).toEqual([]);
  });
});

describe('budget', () => {
  /** The most lines of each part. A change that needs more raises the number in the same commit, whose message says why. */
  const LINES: Readonly<Record<string, number>> = {
    'the core, src/daemon without extensions': 26_304,
    'src/daemon/extensions': 6974,
    'src/daemon/services/collector': 363,
    'src/daemon/services/files': 2609,
    'src/daemon/services/guest': 423,
    'src/daemon/services/handover': 703,
    'src/daemon/services/init': 1559,
    'src/daemon/services/pause': 990,
    'src/daemon/services/ports': 457,
    'src/daemon/services/process': 3452,
    'src/daemon/services/records': 313,
    'src/daemon/services/watch': 2956,
    'src/cli/console/page': 7000,
    'src/kubernetes': 2500,
    'native/src': 4450,
  };
  /** The files at the top of each program. */
  const TOPS: Readonly<Record<string, readonly string[]>> = {
    daemon: ['main.ts', 'run.ts'],
    gateway: ['compose.ts', 'main.ts', 'metrics.ts', 'open.ts', 'run.ts'],
    cli: ['main.ts'],
    kubernetes: ['compose.ts', 'main.ts', 'metrics.ts', 'run.ts'],
  };

  const linesBelow = (folder: string, pattern: string) =>
    globSync(`${folder}/**/${pattern}`, { cwd: TOP })
      .map((file) => readFileSync(join(TOP, file), 'utf8').split('\n').length - 1)
      .reduce((sum, lines) => sum + lines, 0);
  const linesOf = (part: string) => {
    if (part.startsWith('native')) return linesBelow(part, '*.{c,h}');
    const extensions = linesBelow('src/daemon/extensions', '*.ts');
    return part.startsWith('the core')
      ? linesBelow('src/daemon', '*.ts') - extensions
      : linesBelow(part, '*.{ts,tsx}');
  };

  test.each(Object.entries(LINES))('%s has at most %d lines', (part, most) => {
    const lines = linesOf(part);
    expect(lines).toBeGreaterThan(0);
    expect(lines).toBeLessThanOrEqual(most);
  });

  test('each service has one', () => {
    const services = globSync('src/daemon/services/*', { cwd: TOP });
    expect(services.filter((folder) => LINES[folder] === undefined)).toEqual([]);
  });

  test.each(Object.entries(TOPS))('%s has only these files at its top', (program, names) => {
    expect(globSync('*.{ts,tsx}', { cwd: join(ROOT, program) }).sort()).toEqual(names);
  });
});

describe('test files', () => {
  const testFiles = globSync('test/**/*.{ts,mjs}', { cwd: TOP });
  const known = testFiles.flatMap((file) =>
    importsOf(TOP, file)
      .filter(({ target }) => target.startsWith('.'))
      .map(({ target }) => ({ from: file, to: normalize(join(dirname(file), target)) })),
  );

  test('import helpers of test/support only; programs and their tests those of their own folder', () => {
    const strangers = known.filter(({ from, to }) => {
      const isShared = /^(src|native|systemd|proto|examples|test\/support)\//.test(to);
      const program = /^test\/(bench|cluster|demo|fault-points|fuzz|mutants|soak|models)\//.exec(to)?.[0];
      return !isShared && (program === undefined || !from.startsWith(program.slice(0, -1)));
    });
    expect(known.length).toBeGreaterThan(300);
    expect(strangers).toEqual([]);
  });

  test('are not imported', () => {
    expect(known.filter(({ to }) => /\.(test|guest)\.ts$/.test(to))).toEqual([]);
  });

  test('are not repeated by themselves when they fail: CI alone does that, and tells which', () => {
    const again = testFiles.filter((file) => /\bretry: /.test(readFileSync(join(TOP, file), 'utf8')));
    expect(again).toEqual([]);
  });
});
