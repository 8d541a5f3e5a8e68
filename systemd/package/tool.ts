import { execFileSync } from 'node:child_process';

/** The packages of Debian that contain tools whose names do not tell it; `.ci/packages.txt` installs them. */
const PACKAGE_OF: Readonly<Record<string, string>> = { 'dpkg-deb': 'dpkg', rpmbuild: 'rpm' };

export interface ToolOptions {
  readonly cwd?: string;
  /** Variables beside those of this process. */
  readonly env?: Readonly<Record<string, string>>;
}

/** Runs a tool and returns what it printed. Throws with what it said if it fails, or with its package if it is missing. */
export function runTool(tool: string, args: readonly string[], { cwd, env = {} }: ToolOptions = {}): string {
  try {
    return execFileSync(tool, args, {
      cwd,
      // biome-ignore lint/style/noProcessEnv: a tool gets the environment of whoever builds.
      env: { ...process.env, ...env },
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
      maxBuffer: 64 << 20,
    });
  } catch (error) {
    const { code, stdout = '', stderr = '' } = error as { code?: string; stdout?: string; stderr?: string };
    if (code === 'ENOENT')
      throw new Error(`'${tool}' is missing: apt-get update && apt-get install ${PACKAGE_OF[tool] ?? tool}`, {
        cause: error,
      });
    throw new Error(`'${tool} ${args.join(' ')}' failed: ${stdout}${stderr}`, { cause: error });
  }
}
