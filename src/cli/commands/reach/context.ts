import { CONTEXT_NAME, type ConnectionSettings } from '../../connection/contexts.ts';
import { gatewayOf, targetOf } from '../../connection/endpoint.ts';
import { usageError } from '../../output/failure.ts';
import type { Call } from '../spec/call.ts';
import { defineCommand } from '../spec/command.ts';
import type { ArgumentSpec } from '../spec/description.ts';

const NAME: ArgumentSpec = { name: 'name', help: 'the name of the context', completes: 'context' };

export const addContext = defineCommand<object>({
  name: 'context add',
  summary: 'Keep a place, its token and user under a name',
  examples: ['envctl context add dev --url http://localhost:49983 --token-file token'],
  details: [
    'The place and the secrets are those of the options of this call: --url, or --gateway with --sandbox. The file is for its owner only. The first context becomes the current one.',
  ],
  arguments: [{ name: 'name', help: 'letters, digits, dots, dashes and underscores' }],
  options: [],
  json: '{"name","current"}',
  async run(call) {
    const name = call.argument(0);
    if (!CONTEXT_NAME.test(name))
      throw usageError(`a context has a name of letters, digits, '.', '_' and '-', not '${name}'`);
    const settings = await call.flagSettings();
    if (settings.gateway !== undefined && settings.sandbox === undefined) gatewayOf(settings);
    else targetOf(settings);
    if (settings.url === undefined && settings.gateway === undefined)
      throw usageError('give the place of the context: --url, or --gateway and --sandbox');
    const { current, contexts } = await call.contexts.read();
    await call.contexts.write({ current: current ?? name, contexts: new Map(contexts).set(name, settings) });
    await call.output.result({ name, current: (current ?? name) === name }, async () =>
      call.output.note(`kept in ${call.contexts.path}`),
    );
    return 0;
  },
});

export const useContext = defineCommand<object>({
  name: 'context use',
  summary: 'Make a context the current one',
  examples: ['envctl context use dev'],
  arguments: [NAME],
  options: [],
  json: '{"name"}',
  async run(call) {
    const name = call.argument(0);
    const { contexts } = await call.contexts.read();
    requireContext(contexts, name);
    await call.contexts.write({ current: name, contexts });
    await call.output.result({ name }, async () => {});
    return 0;
  },
});

export const removeContext = defineCommand<object>({
  name: 'context remove',
  summary: 'Forget a context',
  examples: ['envctl context remove dev'],
  arguments: [NAME],
  options: [],
  json: '{"name"}',
  async run(call) {
    const name = call.argument(0);
    const { current, contexts } = await call.contexts.read();
    requireContext(contexts, name);
    const left = new Map(contexts);
    left.delete(name);
    await call.contexts.write({ current: current === name ? null : current, contexts: left });
    await call.output.result({ name }, async () => {});
    return 0;
  },
});

export const listContexts = defineCommand<object>({
  name: 'context list',
  summary: 'List the contexts',
  examples: ['envctl context list'],
  details: ['Tokens and keys are not shown, only whether there is one.'],
  arguments: [],
  options: [],
  json: '{"current","contexts":[{"name","url","gateway","sandbox","port","user","hasToken","hasApiKey"}]}',
  async run(call) {
    const { current, contexts } = await call.contexts.read();
    const shown = Array.from(contexts, ([name, settings]) => describe(name, settings));
    await call.output.result({ current, contexts: shown }, () => showContexts(call, current, shown));
    return 0;
  },
});

function requireContext(contexts: ReadonlyMap<string, unknown>, name: string): void {
  if (!contexts.has(name))
    throw usageError(`there is no context '${name}': \`envctl context list\` lists them`);
}

function describe(name: string, settings: ConnectionSettings) {
  const { url = null, gateway = null, sandbox = null, port = null, user = null, token, apiKey } = settings;
  const secrets = { hasToken: token !== undefined, hasApiKey: apiKey !== undefined };
  return { name, url, gateway, sandbox, port, user, ...secrets };
}

async function showContexts(
  { output }: Call,
  current: string | null,
  contexts: readonly ReturnType<typeof describe>[],
): Promise<void> {
  await output.table(
    [
      { title: '' },
      { title: 'NAME' },
      { title: 'PLACE' },
      { title: 'SANDBOX' },
      { title: 'USER' },
      { title: 'SECRETS' },
    ],
    contexts.map(({ name, url, gateway, sandbox, user, hasToken, hasApiKey }) => [
      name === current ? '*' : '',
      { style: 'bold', text: name },
      url ?? gateway ?? '-',
      sandbox ?? '-',
      user ?? '-',
      [hasToken && 'token', hasApiKey && 'key'].filter(Boolean).join(', ') || '-',
    ]),
  );
}
