import { type OutputChunk, type OutputOptions, rolldown } from 'rolldown';
import { requireComplete } from './completeness.ts';

/** A bundled program, and the directories of the packages in it. */
export interface Bundle {
  readonly code: string;
  readonly packages: readonly string[];
}

/** A program in several files, whose names are relative to the directory of `program.cjs`, which starts it. */
export interface Parts {
  readonly files: ReadonlyMap<string, string>;
  readonly packages: readonly string[];
}

/**
 * Bundles the program that starts at `entry`, with its dynamic imports, into one CommonJS file, which Node starts with less work than
 * an ES module. A dynamically imported module is still evaluated when the import is reached. Functions and classes keep their names, so
 * that stack traces in a log can be read. Variables get short names, because V8 keeps names in memory. Throws when an import cannot be
 * resolved, or when the bundle lacks a part of our sources.
 */
export async function bundle(entry: string): Promise<Bundle> {
  const [chunk] = await generate(entry, { codeSplitting: false });
  return { code: toAscii(chunk.code), packages: packagesOf(chunk.moduleIds) };
}

/**
 * Bundles a program into several files, so that Node reads, compiles and imports no more than a command line needs. Names of files tell
 * versions apart, because a program that runs while another version is installed must not load a part of that. Throws as `bundle` does.
 */
export async function bundleInParts(entry: string): Promise<Parts> {
  const chunks = await generate(entry, {
    entryFileNames: 'program.cjs',
    chunkFileNames: 'program/[name]-[hash].cjs',
  });
  return {
    files: new Map(chunks.map(({ fileName, code }) => [fileName, toAscii(code)])),
    packages: packagesOf(chunks.flatMap(({ moduleIds }) => moduleIds)),
  };
}

async function generate(
  entry: string,
  options: OutputOptions,
): Promise<readonly [OutputChunk, ...OutputChunk[]]> {
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
    comments: false,
    minify: { mangle: { keepNames: true }, compress: false, codegen: { removeWhitespace: true } },
    ...options,
  });
  const [first, ...others] = output;
  const chunks = [first, ...others.filter((each) => each.type === 'chunk')] as const;
  for (const chunk of chunks) requireComplete(chunk);
  return chunks;
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
