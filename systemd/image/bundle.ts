import { type Plugin, rolldown } from 'rolldown';

/** A program in one file, and the directories of the packages that went into it. */
export interface Bundle {
  readonly code: string;
  readonly packages: readonly string[];
}

/**
 * Bundles the program that starts at `entry`, as CommonJS, which Node starts with less work. Names are kept, so that a stack trace in a log can be read. Dynamic
 * imports stay lazy: the imported code is evaluated when the import is reached. Throws when an import cannot be resolved.
 */
export async function bundle(entry: string): Promise<Bundle> {
  await using program = await rolldown({
    input: entry,
    platform: 'node',
    plugins: [loadLater],
    onLog(_level, log) {
      if (log.code === 'UNRESOLVED_IMPORT') throw new Error(log.message);
    },
  });
  const { output } = await program.generate({
    format: 'cjs',
    codeSplitting: false,
    comments: false,
    minify: { mangle: false, compress: false, codegen: { removeWhitespace: true } },
  });
  const [{ code, moduleIds }] = output;
  const packages = new Set(moduleIds.flatMap((id) => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(id) ?? []));
  return { code: toAscii(code), packages: [...packages].sort() };
}

/**
 * Modules of Node's that the daemon needs later than its first response, or never: together they take as long as a bare
 * server's start, and 7 MiB (docs/decisions/050-memory-when-idle.md).
 */
const LATER = new Set([
  ...['child_process', 'crypto', 'dns', 'http2', 'https', 'tty', 'v8', 'vm', 'worker_threads', 'zlib'],
]);
const PREFIX = '\0later:';

/** Replaces imports of those by an object that loads the module when a member is read. */
const loadLater: Plugin = {
  name: 'load-later',
  resolveId(source) {
    const name = source.replace(/^node:/, '');
    return LATER.has(name) ? PREFIX + name : null;
  },
  load(id) {
    return id.startsWith(PREFIX) ? laterModule(id.slice(PREFIX.length)) : null;
  },
};

/** The bundler makes an object with the same prototype and copies own members, of which there are none. */
function laterModule(name: string): string {
  return `
    let loaded;
    const members = {
      get: (_, member) =>
        member === '__esModule' ? undefined : (loaded ??= process.getBuiltinModule('${name}'))[member],
    };
    module.exports = Object.create(new Proxy({}, members));`;
}

/** V8 keeps a text with one character beyond Latin-1 in two bytes each. Such characters are in literals only. */
function toAscii(code: string): string {
  return code.replace(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
