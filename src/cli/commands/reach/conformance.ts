import process from 'node:process';
import { parseAs, parseCount } from '../../../base/program/settings.ts';
import { CASE_OPTIONS, type CaseOption } from '../../../conformance/suite/case-options.ts';
import type { CaseResult } from '../../../conformance/suite/runner.ts';
import type { Connection } from '../../connection/connection.ts';
import { Failure, usageError } from '../../output/failure.ts';
import type { Call } from '../spec/call.ts';
import { defineCommand } from '../spec/command.ts';
import type { OptionSpec } from '../spec/description.ts';
import { parseWaiting } from '../spec/parsers.ts';

type ConformanceOptions = Readonly<Partial<Record<CaseOption, boolean>>> & {
  readonly dir?: string;
  readonly limit?: number;
  readonly connections?: number;
  readonly only?: readonly string[];
};

const parseDirectory = parseAs(
  (text) => (text.startsWith('/') ? text : null),
  'It must be an absolute path in the guest.',
);
const LIMIT_MS = 60_000;
const CONNECTIONS = 40;
/** A shell shows this exit code for a program that SIGINT has ended (128 and 2). */
const LEFT = 130;

export const conformanceCommand = defineCommand<ConformanceOptions>({
  name: 'conformance',
  summary: 'Hold a daemon to the published interface, by its calls alone',
  examples: ['envctl conformance --url http://localhost:49983'],
  details: [
    'It works in a directory of its own in the guest, and removes it at the end, also after ^C. Cases that do more are run only with the options that name them. Extensions of envd that the daemon does not name are told as not offered.',
    'It calls the daemon itself, with --url, because a gateway answers some calls on its own. Processes and files are those of the default user.',
  ],
  arguments: [],
  options: [
    {
      flags: '--dir <directory>',
      help: 'a directory of the guest, with user attributes, to work in; default: /tmp',
      parse: parseDirectory,
    },
    { flags: '--limit <time>', help: 'for each case; default: 60s', parse: parseWaiting },
    {
      flags: '--connections <number>',
      help: `how many at a time, where many calls come at once; default: ${CONNECTIONS}`,
      parse: parseCount,
    },
    { flags: '--only <word>', help: 'a section, such as 5.1, or a part of names', isRepeated: true },
    ...Object.entries(CASE_OPTIONS).map(([name, help]): OptionSpec => ({ flags: `--${name}`, help })),
  ],
  exits: [['1', 'A case has failed.']],
  json: 'one line per case: {"section","title","name","outcome":"passed"|"failed"|"not run"|"not offered","milliseconds","reason"}, then {"passed","failed","notRun","notOffered","seconds"}',
  async run(call, options) {
    if ((await call.settings()).gateway !== undefined)
      throw usageError('give the daemon itself with --url: a gateway answers some calls on its own');
    const connection = await call.connection();
    const { url, token } = connection.target;
    const [{ sectionsOf }, { runCases }, { newRun }] = await Promise.all([
      import('../../../conformance/sections.ts'),
      import('../../../conformance/suite/runner.ts'),
      import('../../../conformance/suite/run.ts'),
    ]);
    const { only = [], limit = LIMIT_MS, dir = '/tmp', connections = CONNECTIONS } = options;
    const sections = sectionsOf(only);
    if (sections.length === 0)
      throw usageError(`no section and no case is called '${only.join("' or '")}': see docs/testing.md`);
    await requireReachable(connection);
    const names = Object.keys(CASE_OPTIONS) as CaseOption[];
    const settings = { url: new URL(url), token, directory: dir, connections };
    const run = newRun({ ...settings, options: new Set(names.filter((name) => options[name])) });
    using stop = new StopOnSignal();
    const report = new Report(call);
    for await (const result of runCases(run, { sections, limitMs: limit, stop: stop.signal }))
      await report.add(result);
    const failed = await report.end();
    if (stop.signal.aborted) return LEFT;
    return failed === 0 ? 0 : 1;
  },
});

/** Throws a `Failure` if nobody answers. A daemon that answers wrongly fails in its cases. */
async function requireReachable({ http }: Connection): Promise<void> {
  await http.text({ path: '/health' }).catch((error: unknown) => {
    if (error instanceof Failure && error.reason === 'unreachable') throw error;
  });
}

/** Aborts at the first SIGINT or SIGTERM, so that the run can clean up. The second one ends this program. */
class StopOnSignal implements Disposable {
  readonly #abort = new AbortController();

  constructor() {
    process.on('SIGINT', this.#onSignal).on('SIGTERM', this.#onSignal);
    // Calls of a case that has failed may still wait. They fail with its connections, and nobody waits for that any more.
    process.on('unhandledRejection', ignore);
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  [Symbol.dispose](): void {
    process.off('SIGINT', this.#onSignal).off('SIGTERM', this.#onSignal);
    process.off('unhandledRejection', ignore);
  }

  readonly #onSignal = (): void => {
    if (this.#abort.signal.aborted) process.exit(LEFT);
    this.#abort.abort();
  };
}

function ignore(): void {}

/** Prints the result of each case, and their numbers at the end. */
class Report {
  readonly #call: Call;
  readonly #started = performance.now();
  readonly #counts = { passed: 0, failed: 0, 'not run': 0, 'not offered': 0 };
  #title = '';

  constructor(call: Call) {
    this.#call = call;
  }

  async add(result: CaseResult): Promise<void> {
    this.#counts[result.outcome] += 1;
    await this.#call.output.result(result, () => this.#show(result));
  }

  /** Returns the number of cases that have failed. */
  async end(): Promise<number> {
    const { passed, failed, 'not run': notRun, 'not offered': notOffered } = this.#counts;
    const seconds = Number(((performance.now() - this.#started) / 1000).toFixed(1));
    const told = { passed, failed, notRun, notOffered, seconds };
    const { output } = this.#call;
    await output.result(told, async () => {
      await output.line('');
      await output.line(
        `${passed} passed, ${failed} failed, ${notRun} not run, ${notOffered} not offered, in ${seconds} s`,
      );
    });
    return failed;
  }

  async #show({ section, title, name, outcome, milliseconds, reason }: CaseResult): Promise<void> {
    const { output } = this.#call;
    if (title !== this.#title) {
      if (this.#title !== '') await output.line('');
      this.#title = title;
      await output.line({ style: 'bold', text: `${section} ${title}` });
    }
    const styles = { passed: 'green', failed: 'red', 'not run': 'dim', 'not offered': 'dim' } as const;
    const time = outcome === 'passed' || outcome === 'failed' ? `${milliseconds} ms` : '';
    await output.line({ style: styles[outcome], text: outcome.padEnd(12) }, `${time.padStart(9)}  ${name}`);
    for (const line of reason?.split('\n') ?? []) if (line.trim() !== '') await output.line(`    ${line}`);
  }
}
