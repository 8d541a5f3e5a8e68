import { createRequire } from 'node:module';
import { type InputOptions, type OutputOptions, type Plugin, rolldown } from 'rolldown';

/** A program, and the directories of the packages that went into it. */
export interface Bundle {
  readonly code: string;
  readonly packages: readonly string[];
}

/** A program in two parts, as loader.cjs runs them. */
export interface SplitBundle extends Bundle {
  /** What the program imports after its start: all that only dynamic imports reach, but for those of its entry point. */
  readonly laterCode: string;
}

interface Graph {
  readonly importedIds: readonly string[];
  readonly dynamicallyImportedIds: readonly string[];
}

/**
 * Bundles the program that starts at `entry` into one CommonJS file, which Node starts with less work. Functions and classes keep their
 * names, so that a stack trace in a log can be read; variables get short ones, as V8 keeps the names in memory. Throws when an
 * import cannot be resolved.
 */
export async function bundle(entry: string): Promise<Bundle> {
  await using program = await rolldown(inputOf(entry, []));
  const { output } = await program.generate({ ...STYLE, codeSplitting: false });
  const [{ code, moduleIds }] = output;
  return { code: toAscii(code), packages: packagesOf(moduleIds) };
}

/**
 * The same in two parts. Dynamic imports stay lazy: the imported code is evaluated when the import is reached.
 * @param unused packages that it never loads
 * @param prologue code that comes first
 */
export async function bundleSplit(
  entry: string,
  unused: readonly string[],
  prologue: string,
): Promise<SplitBundle> {
  const first = new Set<string>();
  const findFirst: Plugin = {
    name: 'find-first',
    buildEnd() {
      const graphOf = (id: string): Graph | null => this.getModuleInfo(id);
      for (const id of reachedFirst(entry, graphOf)) first.add(id);
    },
  };
  const input = inputOf(entry, unused);
  await using program = await rolldown({
    ...input,
    plugins: [input.plugins, findFirst],
    preserveEntrySignatures: false,
  });
  const { output } = await program.generate({
    ...STYLE,
    chunkFileNames: '[name].js',
    entryFileNames: `${ENTRY}.js`,
    codeSplitting: {
      groups: [
        { name: 'first', test: (id) => first.has(id), priority: 1 },
        { name: LATER_PART, test: (id) => !first.has(id) },
      ],
    },
  });
  const chunks = output.filter((chunk) => chunk.type === 'chunk');
  const part = (isLater: boolean) =>
    chunks
      .filter(({ name }) => (name === LATER_PART) === isLater)
      .map(({ fileName, code }) => `chunks['./${fileName}'] = (exports, require) => {${toAscii(code)}\n};`)
      .join('\n');
  return {
    code: `(function (${PART_SCOPE}) {{${prologue}}${part(false)}\n})`,
    laterCode: `(function (${PART_SCOPE}) {${part(true)}\n})`,
    packages: packagesOf(chunks.flatMap(({ moduleIds }) => moduleIds)),
  };
}

/** What loader.cjs calls a part with. */
const PART_SCOPE = 'chunks, require, __filename, __dirname';
/** Names of chunks that loader.cjs knows. */
const ENTRY = 'entry';
const LATER_PART = 'later';

const STYLE: OutputOptions = {
  format: 'cjs',
  comments: false,
  minify: { mangle: { keepNames: true }, compress: false, codegen: { removeWhitespace: true } },
};

function inputOf(entry: string, unused: readonly string[]): InputOptions {
  return {
    input: entry,
    platform: 'node',
    plugins: [answered, loadLater, without(unused)],
    onLog(_level, log) {
      if (log.code === 'UNRESOLVED_IMPORT') throw new Error(log.message);
    },
  };
}

/** What `entry` imports, dynamically too, and what that imports in turn, but for dynamic imports. */
function reachedFirst(entry: string, graphOf: (id: string) => Graph | null): ReadonlySet<string> {
  const reached = new Set([entry]);
  // A set that grows is iterated to its end.
  for (const id of reached) {
    const { importedIds = [], dynamicallyImportedIds = [] } = graphOf(id) ?? {};
    for (const each of importedIds) reached.add(each);
    if (id === entry) for (const each of dynamicallyImportedIds) reached.add(each);
  }
  return reached;
}

function packagesOf(modules: readonly string[]): string[] {
  const packages = modules.flatMap((id) => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(id) ?? []);
  return [...new Set(packages)].sort();
}

/**
 * Modules of Node's that the daemon needs later than its first response, or never: together they take as long as a bare
 * server's start, and 7 MiB (docs/decisions/050-memory-when-idle.md).
 */
const LATER = new Set([
  'assert',
  'child_process',
  'crypto',
  'dns',
  'http2',
  'https',
  'perf_hooks',
  'tty',
  'v8',
  'vm',
  'worker_threads',
  'zlib',
]);
/** What calling the module does, unless it is to load it and call that: an assertion that holds needs nothing. */
const CALLED: Readonly<Record<string, string>> = {
  assert: '(...args) => (args[0] ? undefined : load()(...args))',
};
/** Packages likewise: it reads a table of all media types. */
const LATER_PACKAGES = new Set(['mime-types']);
/** Of these modules functions are read early, but called later: connect-node's `promisify(zlib.gzip)`. */
const LATER_FUNCTIONS: Readonly<Record<string, string>> = {
  zlib: '^(create|brotli(C|Dec)ompress$|[a-z]+(zip|flate)$)',
};
/** Read early too, by pino, since no thread runs a program of ours, and by Fastify. */
const KNOWN: Readonly<Record<string, string>> = {
  worker_threads: '{ __proto__: null, isMainThread: true }',
  perf_hooks: '{ __proto__: null, performance }',
};
const PREFIX = '\0later:';

/** Replaces imports of those by a function that loads the module when it is called or a member is read. */
const loadLater: Plugin = {
  name: 'load-later',
  async resolveId(source, importer) {
    const name = source.replace(/^node:/, '');
    if (LATER.has(name)) return PREFIX + name;
    if (!LATER_PACKAGES.has(name)) return null;
    if (!importer?.startsWith(PREFIX)) return PREFIX + name;
    return await this.resolve(source, import.meta.filename, { skipSelf: true });
  },
  load(id) {
    return id.startsWith(PREFIX) ? laterModule(id.slice(PREFIX.length)) : null;
  },
};

/** The bundler makes an object with the same prototype, and copies own members: those of a function. */
function laterModule(name: string): string {
  const load = LATER.has(name) ? `process.getBuiltinModule('${name}')` : `require('${name}')`;
  const functions = LATER_FUNCTIONS[name];
  return `
    let loaded;
    const known = ${KNOWN[name] ?? '{ __proto__: null }'};
    const load = () => (loaded ??= ${load});
    const later = (find) =>
      function (...args) { return new.target ? Reflect.construct(find(), args) : Reflect.apply(find(), this, args); };
    const members = {
      get(_, member, reader) {
        if (member === '__esModule') return undefined;
        if (member in known) return known[member];
        ${functions ? `if (/${functions}/.test(String(member)) && !loaded) return later(() => load()[member]);` : ''}
        const value = load()[member];
        // Read without this function from now on.
        Reflect.defineProperty(reader, member, { value });
        return value;
      },
    };
    module.exports = Object.setPrototypeOf(${CALLED[name] ?? 'later(load)'}, new Proxy({}, members));`;
}

/** Modules whose answer is the same at each start, by the end of their path. */
const ANSWERED: Readonly<Record<string, string>> = {
  // Whether plugins fit Fastify: the same packages are asked when the program runs from its sources. Its expressions are V8's largest.
  '/semver/index.js': 'exports.satisfies = () => true;',
  // Who calls pino, for outputs that we do not use: V8 looks for the ends of all lines of the bundle.
  '/pino/lib/caller.js': 'module.exports = () => [];',
  // For outputs that we do not use.
  '/pino/lib/transport.js': 'module.exports = null;',
  '/pino/lib/multistream.js': 'module.exports = null;',
  // Terminals beside the native functions, which are all that we use.
  '/node-pty/lib/unixTerminal.js': 'exports.UnixTerminal = null;',
  '/node-pty/lib/windowsTerminal.js': 'module.exports = null;',
  // Kinds of metrics that we do not have, and what they load.
  ...Object.fromEntries(
    ['cluster', 'defaultMetrics', 'pushgateway', 'summary'].map((name) => [
      `/prom-client/lib/${name}.js`,
      'module.exports = null;',
    ]),
  ),
  '/mime-db/db.json': JSON.stringify(withExtensions()),
};

/** The media types that a name of a file can tell: two thirds have no extension. */
function withExtensions(): object {
  const all: MediaTypes = createRequire(import.meta.resolve('mime-types'))('mime-db');
  const told = Object.entries(all).filter(([, { extensions }]) => extensions);
  return Object.fromEntries(told.map(([type, { source, extensions }]) => [type, { source, extensions }]));
}
type MediaTypes = Readonly<
  Record<string, { readonly source?: string; readonly extensions?: readonly string[] }>
>;

const answered: Plugin = {
  name: 'answered',
  load: (id) => ANSWERED[Object.keys(ANSWERED).find((end) => id.endsWith(`/node_modules${end}`)) ?? ''],
};

/** Leaves packages out: V8 keeps the text of all that is in the bundle in memory. */
function without(packages: readonly string[]): Plugin {
  const prefix = '\0without:';
  return {
    name: 'without',
    resolveId: (source) => (packages.includes(source) ? prefix + source : null),
    load(id) {
      if (!id.startsWith(prefix)) return null;
      return `throw new Error('${id.slice(prefix.length)} is not in this bundle');`;
    },
  };
}

/** V8 keeps a text with one character beyond Latin-1 in two bytes each. Such characters are in literals only. */
function toAscii(code: string): string {
  return code.replace(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
