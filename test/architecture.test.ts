import { globSync, readFileSync } from 'node:fs';
import { builtinModules } from 'node:module';
import { dirname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { circlesOf, graphOf } from './support/circles.ts';
import { moduleState } from './support/module-state.ts';

const TOP = fileURLToPath(new URL('..', import.meta.url));
const ROOT = join(TOP, 'src');

/** Two wings over one ground. A wing uses itself and the ground; neither uses the other. */
const GROUND = ['base', 'gen'];

/** The floors of each wing, the lowest first. What stands on one floor may use the floors below, and its own room. */
const FLOORS: Readonly<Record<string, readonly (readonly string[])[]>> = {
  daemon: [
    ['os'],
    ['services'],
    ['rest', 'rpc'],
    ['app'],
    ['config'],
    ['compose-init'],
    ['compose-pause'],
    ['compose'],
    ['run'],
    ['main'],
  ],
  gateway: [
    ['leases'],
    ['registry', 'hooks'],
    ['proxy'],
    ['routes', 'expiry'],
    ['api'],
    ['metrics'],
    ['config'],
    ['compose'],
    ['run'],
    ['main'],
  ],
};

/** The one place that may import a package, so that it can be replaced there. */
const OWNERS: Record<string, RegExp> = {
  'node-pty': /^daemon\/os\/pty\.ts$/,
  chokidar: /^daemon\/os\/polled-watch\.ts$/,
  'fs-xattr': /^daemon\/os\/xattr\.ts$/,
  commander: /^base\/settings\.ts$/,
  pino: /^(base|daemon|gateway)\/.+\.ts$/,
  'prom-client': /^(daemon\/rest\/prometheus|gateway\/metrics)\.ts$/,
  fastify: /^(daemon\/(app|compose|rest\/.+|rpc\/mount)|gateway\/api\/.+)\.ts$/,
  httpxy: /^gateway\/proxy\/proxy\.ts$/,
  '@redis/client': /^gateway\/registry\/redis\.ts$/,
  '@fastify/cors': /^daemon\/app\.ts$/,
  '@fastify/multipart': /^daemon\/rest\/routes\/.+\.ts$/,
  '@connectrpc/connect': /^daemon\/(app|rpc\/.+)\.ts$/,
  '@connectrpc/connect-node': /^daemon\/rpc\/mount\.ts$/,
  '@bufbuild/protobuf': /^daemon\/rpc\/.+\.ts$/,
  'mime-types': /^daemon\/(services\/files|rest\/routes)\/.+\.ts$/,
  'content-disposition': /^daemon\/(services\/files|rest\/routes)\/.+\.ts$/,
  'range-parser': /^daemon\/(services\/files|rest\/routes)\/.+\.ts$/,
  fresh: /^daemon\/(services\/files|rest\/routes)\/.+\.ts$/,
  negotiator: /^daemon\/(services\/files|rest\/routes)\/.+\.ts$/,
};

interface Import {
  readonly file: string;
  readonly target: string;
}

const files = globSync('**/*.ts', { cwd: ROOT }).filter((file) => !file.startsWith('gen/'));
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

const wingOf = (file: string) => file.split('/')[0] ?? '';
/** The first folder within a wing, or the file's own name at its top. */
const roomOf = (file: string) => file.split('/')[1]?.replace(/\.ts$/, '') ?? '';
const floorOf = (file: string) =>
  (FLOORS[wingOf(file)] ?? []).findIndex((rooms) => rooms.includes(roomOf(file)));

test('there are files to look at', () => {
  expect(files.length).toBeGreaterThan(200);
  expect(edges.length).toBeGreaterThan(500);
});

describe('the plan', () => {
  test('every file is in the ground, or on a floor of a wing', () => {
    const strangers = files.filter((file) => !GROUND.includes(wingOf(file)) && floorOf(file) < 0);
    expect(strangers).toEqual([]);
  });

  test('the ground uses nothing of ours', () => {
    expect(edges.filter(({ from, to }) => wingOf(from) === 'base' && wingOf(to) !== 'base')).toEqual([]);
  });

  test('no wing uses another', () => {
    const crossing = edges.filter(
      ({ from, to }) => wingOf(to) !== wingOf(from) && !GROUND.includes(wingOf(to)),
    );
    expect(crossing).toEqual([]);
  });

  test('imports go down: neither up, nor to another room of the same floor', () => {
    const up = edges.filter(({ from, to }) => {
      if (wingOf(from) !== wingOf(to) || GROUND.includes(wingOf(from)) || roomOf(from) === roomOf(to))
        return false;
      return floorOf(to) >= floorOf(from);
    });
    expect(up).toEqual([]);
  });

  test('generated messages are known to rpc alone', () => {
    expect(edges.filter(({ from, to }) => wingOf(to) === 'gen' && roomOf(from) !== 'rpc')).toEqual([]);
  });
});

describe('circles', () => {
  test('the search finds one', () => {
    const graph = new Map([
      ['a', new Set(['b'])],
      ['b', new Set(['c'])],
      ['c', new Set(['b'])],
    ]);
    expect(circlesOf(graph)).toEqual(['b > c > b']);
  });

  test('none between files', () => {
    expect(circlesOf(graphOf(edges, (file) => file))).toEqual([]);
  });

  test('none between folders', () => {
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
    ['const last = { a: 1 };\nfunction f() { delete (last as any).a; }', ['last']],
    ['const room = Buffer.alloc(8);', ['room']],
    ['const agent = new Agent({});', ['agent']],
    ['export class A { static count = 0; static readonly B = 1; #open = new Map(); }', ['A.count']],
    ['const known = new Set(["a"]);\nfunction f() { let x = known.has("a"); x = false; return x; }', []],
    ['const table = { a: 1 } as const;\nfunction f() { const open = []; open.push(table.a); }', []],
  ])('the search in %j finds %j', (source, names) => {
    expect(moduleState(source)).toEqual(names);
  });

  test('there is none: what is shared belongs to an object that somebody made', () => {
    const found = files.flatMap((file) =>
      moduleState(readFileSync(join(ROOT, file), 'utf8')).map((name) => `${file}: ${name}`),
    );
    expect(found).toEqual([]);
  });
});

describe('who may use what', () => {
  test('services know no HTTP, no Connect and no protobuf', () => {
    const known = /^(fastify|@fastify\/|@connectrpc\/|@bufbuild\/|node:http)/;
    const below = /^(base|daemon\/services)\//;
    expect(imports.filter(({ file, target }) => below.test(file) && known.test(target))).toEqual([]);
  });

  test('every package has its owner', () => {
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

  test('the native addon has one door', () => {
    const doors = imports.filter(({ target }) => target.includes('native/'));
    expect([...new Set(doors.map(({ file }) => file))]).toEqual(['daemon/os/native.ts']);
  });

  test('argv and the environment are read in one place of each program', () => {
    const readers = files.filter((file) =>
      /process\.(argv|env)\b/.test(readFileSync(join(ROOT, file), 'utf8')),
    );
    expect(readers.sort()).toEqual(['daemon/config.ts', 'gateway/config.ts']);
  });
});

describe('tests', () => {
  const testFiles = globSync('test/**/*.{ts,mjs}', { cwd: TOP });
  const known = testFiles.flatMap((file) =>
    importsOf(TOP, file)
      .filter(({ target }) => target.startsWith('.'))
      .map(({ target }) => ({ from: file, to: normalize(join(dirname(file), target)) })),
  );

  test('use helpers of test/support, and programs those of their own folder', () => {
    const strangers = known.filter(({ from, to }) => {
      const isShared = /^(src|native|test\/support)\//.test(to);
      const isProgram = /^test\/(bench|demo)\//.test(to) && dirname(from) === dirname(to);
      return !isShared && !isProgram;
    });
    expect(known.length).toBeGreaterThan(300);
    expect(strangers).toEqual([]);
  });

  test('are imported by nobody', () => {
    expect(known.filter(({ to }) => /\.(test|guest)\.ts$/.test(to))).toEqual([]);
  });

  test('are never run again when they fail: one that fails by chance is mended', () => {
    const again = testFiles.filter((file) => /\bretry: /.test(readFileSync(join(TOP, file), 'utf8')));
    expect(again).toEqual([]);
  });
});
