import type { McpServer, StandardSchemaWithJSON } from '@modelcontextprotocol/server';
import type { Connection } from '../connection/connection.ts';
import { failureOf } from '../connection/failures.ts';
import { failed, type ToolAnswer } from './answer.ts';
import type { Paths } from './paths.ts';
import type { McpSandbox } from './sandbox.ts';

/** The sandbox and the limits of all tools. */
export interface ToolParts {
  readonly sandbox: McpSandbox;
  readonly paths: Paths;
}

/** One call of a tool. */
export interface ToolCall<Input> extends ToolParts {
  readonly connection: Connection;
  readonly input: Input;
  /** Aborts when the client cancels the call, or has left. */
  readonly signal: AbortSignal;
}

interface ToolSpec<Input> {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly input: StandardSchemaWithJSON<unknown, Input>;
  /** What a tool does to the sandbox, which agents ask their users about. */
  readonly does: 'reads' | 'writes' | 'runs';
  /** Throws `Failure`. */
  run(call: ToolCall<Input>): Promise<ToolAnswer>;
}

/** A tool that can be added to a server. */
export interface Tool {
  readonly does: ToolSpec<unknown>['does'];
  addTo(server: McpServer, parts: ToolParts): void;
}

/** Defines a tool. Its input has the type of its schema. */
export function defineTool<Input>(spec: ToolSpec<Input>): Tool {
  const { name, title, description, input: inputSchema, does } = spec;
  const annotations = {
    readOnlyHint: does === 'reads',
    destructiveHint: does !== 'reads',
    openWorldHint: does === 'runs',
  };
  return {
    does,
    addTo(server, parts) {
      const work = async (input: Input, signal: AbortSignal): Promise<ToolAnswer> => {
        try {
          const connection = await parts.sandbox.connection();
          return await spec.run({ ...parts, connection, input, signal });
        } catch (error) {
          return failed(failureOf(error, 'the daemon').message);
        }
      };
      server.registerTool(name, { title, description, inputSchema, annotations }, (input, { mcpReq }) =>
        work(input, mcpReq.signal),
      );
    },
  };
}
