import { readFile } from 'node:fs/promises';
import { Failure, usageError } from '../../output/failure.ts';
import { defineCommand } from '../spec/command.ts';
import { parseAssignment } from '../spec/parsers.ts';

interface InitOptions {
  readonly env?: readonly (readonly [string, string])[];
  readonly newTokenFile?: string;
  readonly clearToken?: boolean;
  readonly defaultUser?: string;
  readonly defaultWorkdir?: string;
  readonly now?: boolean;
  readonly caBundle?: string;
  readonly body?: string;
}

export const initCommand = defineCommand<InitOptions>({
  name: 'init',
  summary: 'Set variables, defaults, the clock and the token, as a platform does after a boot or resume',
  examples: ['envctl init -e LANG=C.UTF-8 --now'],
  details: [
    'The token of the call stays the token of the daemon, unless --new-token-file or --clear-token says otherwise. Variables of an earlier call are replaced if --env is given. The call thaws what a freeze froze.',
  ],
  arguments: [],
  options: [
    {
      flags: '-e, --env <NAME=VALUE>',
      help: 'a variable of all processes; may be repeated',
      parse: parseAssignment,
      isRepeated: true,
    },
    {
      flags: '--new-token-file <file>',
      help: 'a file with the token from now on; only where none is set yet',
      completes: 'file',
    },
    { flags: '--clear-token', help: 'leave the daemon without a token; only where it allows that' },
    { flags: '--default-user <name>', help: 'the user of calls that name none' },
    { flags: '--default-workdir <path>', help: 'the working directory of processes that name none' },
    { flags: '--now', help: 'set the clock by that of this machine' },
    { flags: '--ca-bundle <file>', help: 'certificates to trust, in PEM', completes: 'file' },
    { flags: '--body <file>', help: 'more members, as JSON', completes: 'file' },
  ],
  json: '{"interface","freezeAudit","handover"}',
  async run(call, options) {
    const connection = await call.connection();
    if (options.newTokenFile !== undefined && options.clearToken)
      throw usageError('--new-token-file and --clear-token exclude each other');
    const body = await bodyOf(options, connection.target.token);
    const { headers } = await connection.http.answer({ method: 'POST', path: '/init', body });
    const told = {
      interface: headers['x-envd-version'] ?? null,
      freezeAudit: jsonIn(headers['x-envd-freeze-audit']),
      handover: jsonIn(headers['x-envd-handover']),
    };
    await call.output.result(told, async () =>
      call.output.note(`applied; interface ${told.interface ?? 'not told'}`),
    );
    return 0;
  },
});

async function bodyOf(options: InitOptions, token: string | null): Promise<object> {
  const { env, newTokenFile, clearToken, defaultUser, defaultWorkdir, now, caBundle, body } = options;
  const newToken = newTokenFile === undefined ? token : (await readText(newTokenFile)).trim();
  return {
    ...(body !== undefined && parseObject(await readText(body), body)),
    ...(!clearToken && newToken !== null && { accessToken: newToken }),
    ...(env && { envVars: Object.fromEntries(env) }),
    ...(defaultUser !== undefined && { defaultUser }),
    ...(defaultWorkdir !== undefined && { defaultWorkdir }),
    ...(now && { timestamp: new Date().toISOString() }),
    ...(caBundle !== undefined && { caBundle: await readText(caBundle) }),
  };
}

async function readText(path: string): Promise<string> {
  return readFile(path, 'utf8').catch((error: Error) => {
    throw new Failure('usage', `cannot read ${path}: ${error.message}`);
  });
}

function parseObject(text: string, path: string): object {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  } catch {
    // The text is not JSON, so the error below is thrown.
  }
  throw usageError(`${path} does not hold a JSON object`);
}

function jsonIn(header: string | string[] | undefined): unknown {
  try {
    return JSON.parse(String(header));
  } catch {
    return null;
  }
}
