import { usageError } from '../../output/failure.ts';
import { defineCommand } from '../spec/command.ts';
import { completionFor, SHELLS } from '../texts/completions.ts';
import { manualPage } from '../texts/manual.ts';

export const completionCommand = defineCommand<object>({
  name: 'completion',
  summary: 'Print the completions for a shell',
  examples: ['envctl completion bash'],
  details: [
    'For bash: `source <(envctl completion bash)` in ~/.bashrc. For zsh: `envctl completion zsh >~/.zfunc/_envctl`, with ~/.zfunc in fpath. For fish: `envctl completion fish >~/.config/fish/completions/envctl.fish`.',
  ],
  arguments: [{ name: 'shell', help: SHELLS.join(', ') }],
  options: [],
  json: 'not JSON',
  async run(call) {
    const shell = call.argument(0);
    const text = completionFor(shell, await call.table());
    if (text === null) throw usageError(`there are completions for ${SHELLS.join(', ')}, not for '${shell}'`);
    await call.output.text(text);
    return 0;
  },
});

export const manCommand = defineCommand<object>({
  name: 'man',
  summary: 'Print the manual page',
  examples: ['envctl man'],
  details: ['`envctl man | man -l -` shows it.'],
  arguments: [],
  options: [],
  json: 'not JSON',
  async run(call) {
    const page = manualPage(await call.table(), call.version);
    await call.output.text(page);
    return 0;
  },
});
