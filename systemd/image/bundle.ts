import { rolldown } from 'rolldown';

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

/** V8 keeps a text with one character beyond Latin-1 in two bytes each. Such characters are in literals only. */
function toAscii(code: string): string {
  return code.replace(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
