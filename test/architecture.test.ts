import { globSync, readFileSync } from 'node:fs';
import { builtinModules } from 'node:module';
import { dirname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const ROOT = fileURLToPath(new URL('../src', import.meta.url));

/** The floors of the house, the ground first; `gen` is beside them, for `rpc` alone. */
const FLOORS = [
  ['base'],
  ['os'],
  ['services'],
  ['rpc'],
  ['server'],
  ['compose', 'config'],
  ['run'],
  ['main'],
];

/** A second program, a wing of its own: of the rest of the house it uses these alone, and nobody uses it. */
const WING = 'gateway';
const OPEN_TO_WING = ['base', 'gen'];

/** The floors of the wing, likewise. */
const WING_FLOORS = [
  ['sandbox'],
  ['registry', 'proxy'],
  ['front', 'expiry'],
  ['platform'],
  ['metrics'],
  ['compose', 'config'],
  ['run'],
  ['main'],
];

/** The one place that may import a package, so that it can be replaced there. */
const OWNERS: Record<string, RegExp> = {
  'node-pty': /^os\/pty\.ts$/,
  chokidar: /^os\/polled-watch\.ts$/,
  'fs-xattr': /^os\/xattr\.ts$/,
  commander: /^(gateway\/)?config\.ts$/,
  pino: /^(run|compose(\/.+)?|server\/(app|operation-log)|gateway\/.+)\.ts$/,
  'prom-client': /^(server\/prometheus|gateway\/metrics)\.ts$/,
  fastify: /^(compose|server\/.+|gateway\/platform\/.+)\.ts$/,
  httpxy: /^gateway\/proxy\/carrier\.ts$/,
  '@redis/client': /^gateway\/registry\/redis\.ts$/,
  '@fastify/cors': /^server\/app\.ts$/,
  '@fastify/multipart': /^server\/routes\/.+\.ts$/,
  '@connectrpc/connect': /^(rpc|server)\/.+\.ts$/,
  '@connectrpc/connect-node': /^server\/connect\.ts$/,
  '@bufbuild/protobuf': /^rpc\/.+\.ts$/,
  'mime-types': /^(services\/files|server\/routes)\/.+\.ts$/,
  'content-disposition': /^(services\/files|server\/routes)\/.+\.ts$/,
  'range-parser': /^(services\/files|server\/routes)\/.+\.ts$/,
  fresh: /^(services\/files|server\/routes)\/.+\.ts$/,
  negotiator: /^(services\/files|server\/routes)\/.+\.ts$/,
};

interface Import {
  readonly file: string;
  readonly target: string;
}

const files = globSync('**/*.ts', { cwd: ROOT }).filter((file) => !file.startsWith('gen/'));
const imports: Import[] = files.flatMap((file) => {
  const text = readFileSync(join(ROOT, file), 'utf8');
  const specifiers = text.matchAll(/^(?:import|export) (?:[^;]*? from )?'([^']+)'|\bimport\('([^']+)'\)/gm);
  return Array.from(specifiers, ([, target, lazy = '']) => ({ file, target: target ?? lazy }));
});

/** The room of a file: its first folder, or its own name at the top. */
function roomOf(file: string): string {
  return file.split('/')[0]?.replace(/\.ts$/, '') ?? '';
}

function floorOf(room: string): number {
  return FLOORS.findIndex((rooms) => rooms.includes(room));
}

function inWing(file: string): boolean {
  return roomOf(file) === WING;
}

function wingFloorOf(file: string): number {
  const room = roomOf(file.slice(WING.length + 1));
  return WING_FLOORS.findIndex((rooms) => rooms.includes(room));
}

/** A relative import as a file below src, or null when it leads out of it. */
function resolveInside({ file, target }: Import): string | null {
  if (!target.startsWith('.')) return null;
  const path = normalize(join(dirname(file), target));
  return path.startsWith('..') ? null : path;
}

const inner = imports.flatMap((edge) => {
  const to = resolveInside(edge);
  return to === null ? [] : [{ from: edge.file, to }];
});

test('there are files to look at', () => {
  expect(files.length).toBeGreaterThan(40);
  expect(inner.length).toBeGreaterThan(100);
});

test('every file is in a room of the house', () => {
  const strangers = files.filter((file) => (inWing(file) ? wingFloorOf(file) : floorOf(roomOf(file))) < 0);
  expect(strangers).toEqual([]);
});

test('the wing uses the ground alone, and nobody uses the wing', () => {
  const crossing = inner.filter(({ from, to }) =>
    inWing(from) ? !inWing(to) && !OPEN_TO_WING.includes(roomOf(to)) : inWing(to),
  );
  expect(crossing).toEqual([]);
  expect(inner.filter(({ from, to }) => inWing(from) && !inWing(to)).length).toBeGreaterThan(5);
});

test('imports go down, never up', () => {
  const up = inner.filter(({ from, to }) => {
    if (inWing(from)) return inWing(to) && wingFloorOf(to) > wingFloorOf(from);
    if (roomOf(to) === 'gen') return roomOf(from) !== 'rpc';
    return floorOf(roomOf(to)) > floorOf(roomOf(from));
  });
  expect(up).toEqual([]);
});

test('imports never go in a circle', () => {
  const edges = Map.groupBy(inner, ({ from }) => from);
  const done = new Set<string>();
  const circles: string[] = [];
  const visit = (file: string, trail: readonly string[]): void => {
    if (trail.includes(file)) circles.push([...trail.slice(trail.indexOf(file)), file].join(' > '));
    if (trail.includes(file) || done.has(file)) return;
    for (const { to } of edges.get(file) ?? []) visit(to, [...trail, file]);
    done.add(file);
  };
  for (const file of files) visit(file, []);
  expect(circles).toEqual([]);
});

test('services know no HTTP, no Connect and no protobuf', () => {
  const known = /^(fastify|@fastify\/|@connectrpc\/|@bufbuild\/|node:http)/;
  expect(imports.filter(({ file, target }) => /^(base|services)\//.test(file) && known.test(target))).toEqual(
    [],
  );
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
  expect([...new Set(doors.map(({ file }) => file))]).toEqual(['os/native.ts']);
});

test('argv and the environment are read in one place', () => {
  const readers = files.filter((file) =>
    /process\.(argv|env)\b/.test(readFileSync(join(ROOT, file), 'utf8')),
  );
  expect(readers).toEqual(['config.ts', 'gateway/config.ts']);
});
