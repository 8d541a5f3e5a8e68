import { catCommand } from './files/cat.ts';
import { mkdirCommand, mvCommand, rmCommand, statCommand } from './files/change.ts';
import { cpCommand } from './files/copy.ts';
import { editCommand } from './files/edit.ts';
import { lsCommand } from './files/ls.ts';
import { findCommand, grepCommand, replaceCommand } from './files/search.ts';
import { syncCommand } from './files/sync.ts';
import { watchCommand } from './files/watch.ts';
import { metricsCommand, upgradeCommand } from './platform/guest.ts';
import { initCommand } from './platform/init.ts';
import { collapseCommand, freezeCommand, pauseTestCommand, thawCommand } from './platform/pause.ts';
import { forwardCommand } from './ports/forward.ts';
import { portsCommand } from './ports/ports.ts';
import { attachCommand, killCommand, logsCommand, waitCommand } from './process/attach.ts';
import { psCommand } from './process/ps.ts';
import { runCommand } from './process/run.ts';
import { shellCommand } from './process/shell.ts';
import { topCommand } from './process/top.ts';
import { conformanceCommand } from './reach/conformance.ts';
import { consoleCommand } from './reach/console.ts';
import { addContext, listContexts, removeContext, useContext } from './reach/context.ts';
import { doctorCommand } from './reach/doctor.ts';
import { healthCommand, versionCommand } from './reach/health.ts';
import { mcpCommand } from './reach/mcp.ts';
import { completionCommand, manCommand } from './reach/texts.ts';
import { addSandboxCommand } from './sandboxes/add.ts';
import {
  extendSandboxCommand,
  killSandboxCommand,
  listSandboxesCommand,
  pauseSandboxCommand,
  resumeSandboxCommand,
} from './sandboxes/sandboxes.ts';
import { watchSandboxesCommand } from './sandboxes/watch.ts';
import type { CommandSpec } from './spec/command.ts';

/** The commands in the order of the help. The parser, the completions and the manual use this table. */
export const COMMANDS: readonly CommandSpec[] = [
  ...[runCommand, shellCommand, psCommand, topCommand, attachCommand, logsCommand, waitCommand, killCommand],
  ...[lsCommand, catCommand, cpCommand, syncCommand, rmCommand, mvCommand, mkdirCommand, statCommand],
  ...[editCommand, watchCommand, findCommand, grepCommand, replaceCommand],
  ...[portsCommand, forwardCommand],
  ...[healthCommand, doctorCommand, versionCommand, metricsCommand, conformanceCommand, consoleCommand],
  mcpCommand,
  ...[initCommand, freezeCommand, thawCommand, collapseCommand, pauseTestCommand, upgradeCommand],
  ...[
    listSandboxesCommand,
    addSandboxCommand,
    extendSandboxCommand,
    pauseSandboxCommand,
    resumeSandboxCommand,
    killSandboxCommand,
    watchSandboxesCommand,
  ],
  ...[addContext, useContext, listContexts, removeContext, completionCommand, manCommand],
];

/** The keys are names of groups of commands, and the values their summaries. */
export const GROUPS: Readonly<Record<string, string>> = {
  sandboxes: 'The sandboxes of a gateway',
  context: 'Places with their tokens, under names',
};
