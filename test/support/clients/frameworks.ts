import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

/**
 * Frameworks above the published clients that are no dependencies of this project, with the versions that the tests run.
 * `@mastra/e2b` needs `@mastra/core`, which is larger than all that this project is built with.
 */
export const FRAMEWORKS = { '@mastra/e2b': '0.8.0', 'langchain-e2b-selfhost': '0.0.2' } as const;

/** Besides it, what it needs: the client as the other tests have it. */
const MASTRA = [`@mastra/e2b@${FRAMEWORKS['@mastra/e2b']}`, '@mastra/core@1.55.0', 'e2b@2.51.0'];
const CACHE = fileURLToPath(new URL('../../../node_modules/.cache/frameworks', import.meta.url));
const INSTALLED = join(CACHE, `mastra-e2b-${FRAMEWORKS['@mastra/e2b']}`);
const BINARIES = fileURLToPath(new URL('../../../node_modules/.bin', import.meta.url));

/** Installs `@mastra/e2b` into a cache if it is asked for and not there. Throws if npm cannot. */
export function installMastra(): void {
  if (existsSync(INSTALLED)) return;
  if (process.env.ENVD_FRAMEWORKS !== '1')
    throw new Error('ENVD_FRAMEWORKS=1 is not set, which downloads 160 MB');
  mkdirSync(CACHE, { recursive: true });
  const making = `${INSTALLED}.${process.pid}`;
  // npm runs with the machine's Node, as in the set-up.
  const path = (process.env.PATH ?? '').split(delimiter).filter((each) => each !== BINARIES);
  const { status } = spawnSync(
    'npm',
    ['install', '--prefix', making, '--save-exact', '--ignore-scripts', '--no-audit', '--no-fund', ...MASTRA],
    { stdio: 'ignore', timeout: 300_000, env: { ...process.env, PATH: path.join(delimiter) } },
  );
  if (status === 0 && !existsSync(INSTALLED)) renameSync(making, INSTALLED);
  rmSync(making, { recursive: true, force: true });
  if (!existsSync(INSTALLED)) throw new Error('npm cannot install @mastra/e2b');
}

/** The URL of the module, which TypeScript cannot see because it is not among the dependencies. */
export const MASTRA_MODULE = pathToFileURL(join(INSTALLED, 'node_modules/@mastra/e2b/dist/index.js')).href;
