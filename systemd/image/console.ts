import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { rolldown } from 'rolldown';
import { packagesOf } from './bundle.ts';

/** Styles of packages that are in the page's. */
const STYLES = ['@xterm/xterm/css/xterm.css', 'uplot/dist/uPlot.min.css'];
const OWN_STYLES = [
  ...['base.css', 'parts/parts.css', 'parts/tables.css', 'terminals/terminals.css', 'views.css'],
];

/**
 * Builds the page of `envctl console` in the directory `out`: scripts for browsers, those of terminals and plots apart, because they are
 * loaded when they are needed. Returns the directories of the packages in it. `root`: of the sources.
 */
export async function buildPage(root: string, out: string): Promise<readonly string[]> {
  const page = join(root, 'src/cli/console/page');
  await using program = await rolldown({
    input: join(page, 'main.tsx'),
    platform: 'browser',
    transform: { jsx: { runtime: 'automatic', importSource: 'preact' } },
    onLog(_level, log) {
      if (log.code === 'UNRESOLVED_IMPORT') throw new Error(log.message);
    },
  });
  const { output } = await program.generate({
    ...{ format: 'es', minify: true, comments: false },
    ...{ entryFileNames: '[name].js', chunkFileNames: '[name].js' },
  });
  rmSync(out, { recursive: true, force: true });
  mkdirSync(out, { recursive: true });
  for (const file of output)
    writeFileSync(join(out, file.fileName), file.type === 'chunk' ? file.code : file.source);
  const styles = [
    ...STYLES.map((path) => join(root, 'node_modules', path)),
    ...OWN_STYLES.map((path) => join(page, path)),
  ];
  writeFileSync(join(out, 'style.css'), styles.map((path) => readFileSync(path, 'utf8')).join('\n'));
  for (const name of ['index.html', 'icon.svg']) copyFileSync(join(page, name), join(out, name));
  return packagesOf(output.flatMap((file) => (file.type === 'chunk' ? file.moduleIds : [])));
}
