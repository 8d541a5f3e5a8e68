import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { askForHealth, collapseMemory, freezeAndThaw, initialize, readMetrics } from './control.ts';
import { carryAFile, tidyUp, watchADirectory } from './files.ts';
import { feedStdin, meetAnError, streamOutput, useTerminal } from './processes.ts';
import { heading, remark, say } from './screen.ts';
import { start } from './start.ts';
import { type Visitor, visit } from './visitor.ts';

type Step = readonly [
  title: string,
  explanation: string,
  run: (visitor: Visitor, directory: string) => Promise<void>,
];

/** The exit code of a shell for a death by SIGINT. */
const INTERRUPTED = 130;

const STEPS: readonly Step[] = [
  ['Health', 'Is anybody there?', askForHealth],
  ['Init', 'The platform says who calls and what every process finds in its environment.', initialize],
  ['A command', 'Its output arrives while it runs, its exit code at the end.', streamOutput],
  ['Standard input', 'Words go in one by one, answers come back.', feedStdin],
  ['A terminal', 'A shell prompts, echoes, and learns of a new window size.', useTerminal],
  ['A file', 'Up with metadata, down whole, down in part.', carryAFile],
  ['Look, move, list', 'Missing directories are made on the way.', tidyUp],
  ['A watch', 'Changes are told as they happen, whoever makes them.', watchADirectory],
  ['Freeze and thaw', 'A process that counts stands still, then goes on.', freezeAndThaw],
  ['Collapse', 'Before a snapshot the daemon packs its memory into huge pages.', collapseMemory],
  ['Metrics', 'What the machine is doing.', readMetrics],
  ['Errors', 'What cannot be done is refused in plain words.', meetAnError],
];

/** Runs the steps in order; returns the exit code. */
async function tour(): Promise<number> {
  say('envd is the agent inside a sandbox: a remote client asks over HTTP, it runs commands, carries files,');
  say('watches directories. This tour starts a real one and asks. → is what was sent, ← what came back.');
  await using daemon = await startDaemon();
  say(`It listens at ${daemon.url}, as process ${daemon.pid}.`);
  // Ctrl-C also reaches the daemon, which stops in order; the current step fails.
  let interrupted = false;
  process.once('SIGINT', () => {
    interrupted = true;
  });
  try {
    await takeSteps(daemon);
  } catch (error) {
    if (!interrupted) throw error;
    await daemon.exited;
    return INTERRUPTED;
  }
  heading(STEPS.length + 1, 'Stop', 'SIGTERM ends it in order: no process, no socket, no file stays behind.');
  const code = await daemon.stop();
  remark(`The daemon has ended with exit code ${code}.`);
  return code ?? 1;
}

async function takeSteps({ url, scratch }: TestDaemon): Promise<void> {
  const directory = join(scratch, 'tour');
  mkdirSync(directory);
  const visitor = visit(url);
  for (const [index, [title, explanation, run]] of STEPS.entries()) {
    heading(index + 1, title, explanation);
    await run(visitor, directory);
  }
}

await start(tour, {
  needs: ['root'],
  farewell:
    '`npm start` runs one for you on port 49983. Then `npm run envctl -- console` prints the address of a page with its terminals, processes and files.',
});
