import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { until } from '../until.ts';
import { type EnvctlOptions, startEnvctl } from './envctl.ts';

/** `envctl console` in a process of its own. */
export interface TestConsole extends AsyncDisposable {
  /** The address that was printed; it works once. */
  readonly link: string;
  /** `http://127.0.0.1:PORT`. */
  readonly origin: string;
  readonly secret: string;
  readonly pid: number;
}

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

/** Builds the page, where the programs are tested from the sources. */
export function buildPage(): void {
  if (!process.env.ENVD_TEST_IMAGE)
    execFileSync('sh', [`${ROOT}/.ci/page`], {
      env: { PATH: `${dirname(process.execPath)}:${process.env.PATH}` },
    });
}

/** Starts a console of the daemon at `url`; empty: the environment tells the gateway. */
export async function startConsole(
  url: string,
  args: readonly string[] = [],
  options: EnvctlOptions = {},
): Promise<TestConsole> {
  const running = startEnvctl(url, ['console', ...args], options);
  await until(
    'the console has printed its address',
    () => running.stdout().includes('\n') || running.hasEnded(),
  );
  const [link = ''] = running.stdout().split('\n');
  if (link === '') throw new Error(`envctl console: ${running.stderr()}`);
  return {
    link,
    origin: new URL(link).origin,
    secret: new URL(link).hash.slice(1),
    pid: running.child.pid ?? -1,
    async [Symbol.asyncDispose]() {
      const exited = running.child.exitCode === null && once(running.child, 'exit');
      running.child.kill('SIGKILL');
      await exited;
    },
  };
}

/** A session of a console, as the page gets one. */
export async function openSession({ origin, secret }: TestConsole): Promise<{
  readonly session: string;
  readonly streams: readonly string[];
}> {
  const response = await fetch(`${origin}/session`, {
    method: 'POST',
    headers: { origin },
    body: JSON.stringify({ secret }),
  });
  if (response.status !== 200) throw new Error(`session: ${response.status}`);
  const { session, about } = (await response.json()) as { session: string; about: { streams: string[] } };
  return { session, streams: about.streams };
}
