import { askState } from '../../connection/daemon-state.ts';
import { defineCommand } from '../spec/command.ts';

export const healthCommand = defineCommand<object>({
  name: 'health',
  summary: 'Tell whether the daemon answers, and its state where it tells that',
  examples: ['envctl health'],
  details: ['Asking whether it answers needs no token; its state does.'],
  arguments: [],
  options: [],
  json: '{"healthy","version","interface","since","frozen":{"workload","filesystem"}|null,"abilities"}',
  async run(call) {
    const http = await call.http();
    await http.text({ path: '/health' });
    // Without the right token, the daemon says no more than that it is healthy.
    const state = await askState({ http }).catch(() => null);
    const {
      version = null,
      interface: level = null,
      since = null,
      frozen = null,
      abilities = {},
    } = state ?? {};
    const told = { healthy: true, version, interface: level, since, frozen, abilities };
    await call.output.result(told, async () => {
      await call.output.line(
        { style: 'green', text: 'healthy' },
        version === null ? '' : `  envd ${version}`,
      );
      if (frozen?.workload) await call.output.line('the workload is frozen');
      if (frozen?.filesystem) await call.output.line('the file system is frozen');
    });
    return 0;
  },
});

export const versionCommand = defineCommand<object>({
  name: 'version',
  summary: 'Print the versions of envctl and of the daemon',
  examples: ['envctl version'],
  arguments: [],
  options: [],
  json: '{"envctl","daemon":{"version","interface"}}',
  async run(call) {
    const { version, interface: level } = await askState({ http: await call.http() });
    const daemon = { version, interface: level };
    await call.output.result({ envctl: call.version, daemon }, async () => {
      await call.output.line(`envctl ${call.version}`);
      await call.output.line(
        version === null ? 'daemon: not told; this is not envd' : `envd ${version}, interface ${level}`,
      );
    });
    return 0;
  },
});
