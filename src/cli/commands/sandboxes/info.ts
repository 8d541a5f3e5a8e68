import { defineCommand } from '../spec/command.ts';
import { ID_ARGUMENT } from './sandboxes.ts';

/** These members of a sandbox give access to it. */
const SECRETS = ['envdAccessToken', 'trafficAccessToken'];

export const sandboxInfoCommand = defineCommand<{ readonly secrets?: boolean }>({
  name: 'sandboxes info',
  summary: 'Show what a gateway tells of a sandbox',
  examples: ['envctl sandboxes info ID'],
  details: [
    'The tokens are left out, except with --secrets. Other commands need no token where there is a key: they find it as this one does.',
  ],
  arguments: [ID_ARGUMENT],
  options: [{ flags: '--secrets', help: 'with the tokens of its daemon and of its ports' }],
  json: 'as GET /sandboxes/ID answers',
  async run(call, { secrets = false }) {
    const gateway = await call.gateway();
    const told = await gateway.json({ path: `/sandboxes/${encodeURIComponent(call.argument(0))}` });
    const members = Object.entries(told ?? {}).filter(([name]) => secrets || !SECRETS.includes(name));
    await call.output.result(Object.fromEntries(members), async () => {
      const width = Math.max(...members.map(([name]) => name.length));
      for (const [name, value] of members)
        await call.output.line(
          { style: 'bold', text: name.padEnd(width) },
          `  ${typeof value === 'string' ? value : JSON.stringify(value)}`,
        );
    });
    return 0;
  },
});
