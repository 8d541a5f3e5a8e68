import { rolldown } from 'rolldown';
import { requireComplete } from './completeness.ts';

/** A bundled program, and the directories of the packages in it. */
export interface Bundle {
  readonly code: string;
  readonly packages: readonly string[];
}

/**
 * Bundles the program that starts at `entry`, with its dynamic imports, into one CommonJS file, which Node starts with less work than
 * an ES module. A dynamically imported module is still evaluated when the import is reached. Functions and classes keep their names, so
 * that stack traces in a log can be read. Variables get short names, because V8 keeps names in memory. Throws when an import cannot be
 * resolved, or when the bundle lacks a part of our sources.
 */
export async function bundle(entry: string): Promise<Bundle> {
  await using program = await rolldown({
    input: entry,
    platform: 'node',
    // Tree shaking would also remove calls whose result is not used, such as a decodeURIComponent() that is there to throw.
    treeshake: false,
    // The library for WebSockets never looks for its optional parts, which somebody could put beside the program.
    external: ['bufferutil', 'utf-8-validate'],
    transform: {
      define: { 'process.env.WS_NO_BUFFER_UTIL': "'1'", 'process.env.WS_NO_UTF_8_VALIDATE': "'1'" },
    },
    onLog(_level, log) {
      if (log.code === 'UNRESOLVED_IMPORT') throw new Error(log.message);
    },
  });
  const { output } = await program.generate({
    format: 'cjs',
    codeSplitting: false,
    comments: false,
    minify: { mangle: { keepNames: true }, compress: false, codegen: { removeWhitespace: true } },
  });
  const [chunk] = output;
  requireComplete(chunk);
  return { code: toAscii(chunk.code), packages: packagesOf(chunk.moduleIds) };
}

/** Wraps a bundle in the function that loader.cjs runs. */
export function asFunction(code: string): string {
  return `(function (exports, require, module, __filename, __dirname) {${code}\n})`;
}

/** Returns the directories of the packages that modules are in. */
export function packagesOf(modules: readonly string[]): string[] {
  const packages = modules.flatMap((id) => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(id) ?? []);
  return [...new Set(packages)].sort();
}

/**
 * Escapes characters beyond ASCII, which only occur in literals. With a single character beyond Latin-1, V8 would keep the whole text in
 * two bytes per character.
 */
function toAscii(code: string): string {
  return code.replace(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
