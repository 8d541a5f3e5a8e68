import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { bundle } from './bundle.ts';
import { buildPage } from './console.ts';
import { licencesOf } from './licences.ts';

/** What envctl prints of itself, and where shells and man look for it. */
const PRINTED = {
  'share/man/man1/envctl.1': ['man'],
  'share/bash-completion/completions/envctl': ['completion', 'bash'],
  'share/zsh/site-functions/_envctl': ['completion', 'zsh'],
  'share/fish/vendor_completions.d/envctl.fish': ['completion', 'fish'],
} as const;

/**
 * Builds dist-envctl/: the program in one file, the page of its console, its manual and completions. Unlike the daemon and the gateway it has no Node of its
 * own: it runs on the machines of people, which have one, and so it is a hundredth of their size and the same for all processors.
 * `root`: of the sources; `out`: where the directory is made; `description`: the text of its package.json.
 */
export async function buildEnvctl(root: string, out: string, description: string): Promise<void> {
  const dist = join(out, 'dist-envctl');
  rmSync(dist, { recursive: true, force: true });
  const { code, packages } = await bundle(join(root, 'src/cli/main.ts'));
  put(join(dist, 'lib/program.cjs'), code);
  put(join(dist, 'package.json'), description);
  const ofPage = await buildPage(root, join(dist, 'share/console'));
  put(join(dist, 'LICENSES'), licencesOf([...packages, ...ofPage]));
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
  for (const [file, args] of Object.entries(PRINTED))
    put(join(dist, file), execFileSync(process.execPath, [program, ...args], { encoding: 'utf8', env: {} }));
}

function put(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}
