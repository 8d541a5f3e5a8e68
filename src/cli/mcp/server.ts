import { McpServer } from '@modelcontextprotocol/server';
import { CommandTools } from './command-tools.ts';
import { editFileTool, listDirectoryTool, readFileTool, writeFileTool } from './file-tools.ts';
import { Paths } from './paths.ts';
import { listPortsTool } from './ports-tool.ts';
import type { McpSandbox } from './sandbox.ts';
import { findFilesTool, searchFilesTool } from './search-tools.ts';
import type { Tool, ToolParts } from './tool.ts';

export interface McpSettings {
  readonly sandbox: McpSandbox;
  /** Tools that name a path reach only what is below this one; null: everything. */
  readonly root: string | null;
  /** No tool changes anything or runs a command. */
  readonly isReadOnly: boolean;
  /** There are tools that run commands. */
  readonly hasCommands: boolean;
  /** The version of envctl. */
  readonly version: string;
}

const READING = [readFileTool, listDirectoryTool, findFilesTool, searchFilesTool, listPortsTool];
const WRITING = [writeFileTool, editFileTool];

/** The tools with their sandbox. All servers of one program share what was started. */
export class SandboxTools {
  readonly #settings: McpSettings;
  readonly #parts: ToolParts;
  readonly #commands = new CommandTools();
  readonly #tools: readonly Tool[];

  constructor(settings: McpSettings) {
    const { sandbox, root, isReadOnly, hasCommands } = settings;
    this.#settings = settings;
    this.#parts = { sandbox, paths: new Paths(root) };
    this.#tools = [
      ...(hasCommands && !isReadOnly ? this.#commands.tools : []),
      ...READING,
      ...(isReadOnly ? [] : WRITING),
    ];
  }

  /** Returns a server for one connection. */
  newServer(): McpServer {
    const { root, isReadOnly, hasCommands, version } = this.#settings;
    const instructions = [
      'The tools work in a sandbox, which is another machine: its files and processes are not those of this one.',
      ...(root === null
        ? []
        : [`The tools for files reach what is below ${root}, and relative paths begin there.`]),
      ...(isReadOnly ? ['Nothing can be changed.'] : []),
      ...(isReadOnly || !hasCommands ? ['There is no tool that runs commands.'] : []),
    ].join(' ');
    const server = new McpServer({ name: 'envctl', version }, { instructions });
    for (const tool of this.#tools) tool.addTo(server, this.#parts);
    return server;
  }

  /** Stops what was started, and leaves the sandbox. Throws `Failure`. */
  async end(): Promise<void> {
    const { sandbox } = this.#settings;
    if (!sandbox.isRemoved) await this.#commands.stopAll();
    await sandbox.leave();
  }
}
