import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { bundleInParts } from './bundle.ts';
import { buildPage } from './console.ts';
import { licencesOf } from './licences.ts';
import { putRuntime, type Target } from './runtime.ts';

/** What envctl prints of itself, and where shells and man look for it. */
const PRINTED = {
  'share/man/man1/envctl.1': ['man'],
  'share/bash-completion/completions/envctl': ['completion', 'bash'],
  'share/zsh/site-functions/_envctl': ['completion', 'zsh'],
  'share/fish/vendor_completions.d/envctl.fish': ['completion', 'fish'],
} as const;

/** What envctl.sh prints without loading the program. */
const SAID = {
  'lib/said/version': ['--version'],
  'lib/said/help': ['--help'],
  'lib/said/man': ['man'],
  'lib/said/bash': ['completion', 'bash'],
  'lib/said/zsh': ['completion', 'zsh'],
  'lib/said/fish': ['completion', 'fish'],
} as const;

/**
 * Builds the directory `dist`: the program, the pinned Node with its libraries, so that it runs on any machine of its
 * processor, the page of its console, its manual and completions. `root`: of the sources; `description`: the text of its package.json.
 */
export async function buildEnvctl(
  root: string,
  dist: string,
  target: Target,
  description: string,
): Promise<void> {
  rmSync(dist, { recursive: true, force: true });
  const { files, packages } = await bundleInParts(join(root, 'src/cli/main.ts'));
  for (const [file, code] of files) put(join(dist, 'lib', file), code);
  put(join(dist, 'package.json'), description);
  const ofPage = await buildPage(root, join(dist, 'share/console'));
  const libraries = putRuntime(join(dist, 'lib'), 'envctl', target, { hasLibraries: true });
  put(join(dist, 'LICENSES'), licencesOf([...packages, ...ofPage, target.node], libraries));
  for (const [source, destination] of [
    ['systemd/image/envctl.cjs', 'lib/envctl.cjs'],
    ['systemd/image/envctl.sh', 'bin/envctl'],
    ['LICENSE', 'LICENSE'],
  ] as const) {
    mkdirSync(dirname(join(dist, destination)), { recursive: true });
    copyFileSync(join(root, source), join(dist, destination));
  }
  chmodSync(join(dist, 'bin/envctl'), 0o755);
  const program = join(dist, 'lib/program.cjs');
  const print = (args: readonly string[]) =>
    execFileSync(process.execPath, [program, ...args], { encoding: 'utf8', env: {} });
  for (const [file, args] of Object.entries({ ...PRINTED, ...SAID })) put(join(dist, file), print(args));
}

function put(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}
