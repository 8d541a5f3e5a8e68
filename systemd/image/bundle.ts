import { rolldown } from 'rolldown';
import { requireComplete } from './completeness.ts';

/** A program, and the directories of the packages that went into it. */
export interface Bundle {
  readonly code: string;
  readonly packages: readonly string[];
}

/**
 * Bundles the program that starts at `entry`, with what it imports dynamically, into one CommonJS file, which Node starts with less
 * work than an ES module. Imported modules are still evaluated when the import is reached. Functions and classes keep their names, so
 * that a stack trace in a log can be read; variables get short ones, as V8 keeps the names in memory. Throws when an import
 * cannot be resolved, or when a part of our sources is not in the bundle.
 */
export async function bundle(entry: string): Promise<Bundle> {
  await using program = await rolldown({
    input: entry,
    platform: 'node',
    // It would also remove calls whose result is not used, such as a decodeURIComponent() that is there to throw.
    treeshake: false,
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

/** A bundle as loader.cjs runs it. */
export function asFunction(code: string): string {
  return `(function (exports, require, module, __filename, __dirname) {${code}\n})`;
}

function packagesOf(modules: readonly string[]): string[] {
  const packages = modules.flatMap((id) => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(id) ?? []);
  return [...new Set(packages)].sort();
}

/** V8 keeps a text with one character beyond Latin-1 in two bytes each. Such characters are in literals only. */
function toAscii(code: string): string {
  return code.replace(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
