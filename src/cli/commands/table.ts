import type { CommandSpec } from './spec/command.ts';

type Entry = readonly [names: readonly string[], load: () => Promise<CommandSpec>];

/**
 * Loads the commands, in the order of the help. A command line loads none but those whose names it has, because each takes time to
 * load.
 */
const ENTRIES: readonly Entry[] = [
  [['run', 'exec'], async () => (await import('./process/run.ts')).runCommand],
  [['shell'], async () => (await import('./process/shell.ts')).shellCommand],
  [['ps'], async () => (await import('./process/ps.ts')).psCommand],
  [['top'], async () => (await import('./process/top.ts')).topCommand],
  [['attach'], async () => (await import('./process/attach.ts')).attachCommand],
  [['logs'], async () => (await import('./process/logs.ts')).logsCommand],
  [['wait'], async () => (await import('./process/attach.ts')).waitCommand],
  [['kill'], async () => (await import('./process/attach.ts')).killCommand],
  [['ls'], async () => (await import('./files/ls.ts')).lsCommand],
  [['cat'], async () => (await import('./files/cat.ts')).catCommand],
  [['cp'], async () => (await import('./files/copy.ts')).cpCommand],
  [['sync'], async () => (await import('./files/sync.ts')).syncCommand],
  [['rm'], async () => (await import('./files/change.ts')).rmCommand],
  [['mv'], async () => (await import('./files/change.ts')).mvCommand],
  [['mkdir'], async () => (await import('./files/change.ts')).mkdirCommand],
  [['stat'], async () => (await import('./files/change.ts')).statCommand],
  [['edit'], async () => (await import('./files/edit.ts')).editCommand],
  [['watch'], async () => (await import('./files/watch.ts')).watchCommand],
  [['find'], async () => (await import('./files/search.ts')).findCommand],
  [['grep'], async () => (await import('./files/search.ts')).grepCommand],
  [['replace'], async () => (await import('./files/search.ts')).replaceCommand],
  [['ports'], async () => (await import('./ports/ports.ts')).portsCommand],
  [['forward'], async () => (await import('./ports/forward.ts')).forwardCommand],
  [['health'], async () => (await import('./reach/health.ts')).healthCommand],
  [['doctor'], async () => (await import('./reach/doctor.ts')).doctorCommand],
  [['version'], async () => (await import('./reach/health.ts')).versionCommand],
  [['metrics'], async () => (await import('./platform/guest.ts')).metricsCommand],
  [['conformance'], async () => (await import('./reach/conformance.ts')).conformanceCommand],
  [['console'], async () => (await import('./reach/console.ts')).consoleCommand],
  [['mcp'], async () => (await import('./reach/mcp.ts')).mcpCommand],
  [['init'], async () => (await import('./platform/init.ts')).initCommand],
  [['freeze'], async () => (await import('./platform/pause.ts')).freezeCommand],
  [['thaw'], async () => (await import('./platform/pause.ts')).thawCommand],
  [['collapse'], async () => (await import('./platform/pause.ts')).collapseCommand],
  [['pause-test'], async () => (await import('./platform/pause.ts')).pauseTestCommand],
  [['upgrade'], async () => (await import('./platform/guest.ts')).upgradeCommand],
  [['sandboxes list'], async () => (await import('./sandboxes/sandboxes.ts')).listSandboxesCommand],
  [['sandboxes create'], async () => (await import('./sandboxes/create.ts')).createSandboxCommand],
  [['sandboxes info'], async () => (await import('./sandboxes/info.ts')).sandboxInfoCommand],
  [['sandboxes add'], async () => (await import('./sandboxes/add.ts')).addSandboxCommand],
  [['sandboxes extend'], async () => (await import('./sandboxes/sandboxes.ts')).extendSandboxCommand],
  [['sandboxes pause'], async () => (await import('./sandboxes/sandboxes.ts')).pauseSandboxCommand],
  [['sandboxes resume'], async () => (await import('./sandboxes/sandboxes.ts')).resumeSandboxCommand],
  [['sandboxes kill'], async () => (await import('./sandboxes/sandboxes.ts')).killSandboxCommand],
  [['sandboxes watch'], async () => (await import('./sandboxes/watch.ts')).watchSandboxesCommand],
  [['context add'], async () => (await import('./reach/context.ts')).addContext],
  [['context use'], async () => (await import('./reach/context.ts')).useContext],
  [['context list'], async () => (await import('./reach/context.ts')).listContexts],
  [['context remove'], async () => (await import('./reach/context.ts')).removeContext],
  [['completion'], async () => (await import('./reach/texts.ts')).completionCommand],
  [['man'], async () => (await import('./reach/texts.ts')).manCommand],
  [['complete'], async () => (await import('./reach/complete.ts')).completeCommand],
];

/** Loads all commands. The parser, the completions and the manual use them. */
export function allCommands(): Promise<CommandSpec[]> {
  return load(ENTRIES);
}

/** Loads the commands that words before `--` may name. Those of a group have its name as their first word. */
export function commandsNamed(argv: readonly string[]): Promise<CommandSpec[]> {
  const words = argv.slice(0, argv.indexOf('--') >>> 0);
  return load(ENTRIES.filter(([names]) => names.some((name) => words.includes(name.split(' ')[0] ?? ''))));
}

function load(entries: readonly Entry[]): Promise<CommandSpec[]> {
  return Promise.all(entries.map(([, loadOne]) => loadOne()));
}

/** The keys are names of groups of commands, and the values their summaries. */
export const GROUPS: Readonly<Record<string, string>> = {
  sandboxes: 'The sandboxes of a gateway',
  context: 'Places with their tokens, under names',
};
