// This separate program searches files for the daemon with the rights of a user. If a regular expression of a client never
// ends, it blocks this process and not the daemon. `SearchProcesses` starts it, and protocol.ts has its messages.
import process from 'node:process';
import { text } from 'node:stream/consumers';
import { runInNewContext } from 'node:vm';
import { EnvdError, messageOf } from '../../../../base/errors.ts';
import { nameProcess } from '../../../../base/program/main.ts';
import { explain } from '../../../linux/system/errno.ts';
import { find } from './find.ts';
import type { ProgramFailure, SearchJob } from './protocol.ts';
import { replace } from './replace.ts';
import { ResultWriter } from './result-writer.ts';

/** Gives up the rights of root for good, before the program looks at any path of a client. */
function takeRights({ uid, gid, groups }: NonNullable<SearchJob['rights']>): void {
  process.setgroups?.([...groups]);
  process.setgid?.(gid);
  process.setuid?.(uid);
}

function runJob(job: SearchJob, output: ResultWriter): void {
  const { task } = job;
  if (task.kind === 'find') find(job, task, output);
  else replace(job, task, output);
}

function failureOf(error: unknown, { shown, limitMs }: SearchJob): ProgramFailure {
  if (error instanceof Error && 'code' in error && error.code === 'ERR_SCRIPT_EXECUTION_TIMEOUT') {
    const message = `search has not ended within ${limitMs / 1000} s: narrow it by path, name, or a simpler expression`;
    return { error: { kind: 'deadline_exceeded', message } };
  }
  const known = explain(error, shown);
  const kind = known instanceof EnvdError ? known.kind : 'internal';
  return { error: { kind, message: messageOf(known) } };
}

async function main(): Promise<void> {
  nameProcess('envd');
  const job: SearchJob = JSON.parse(await text(process.stdin));
  const output = new ResultWriter();
  try {
    if (job.rights) takeRights(job.rights);
    // This limit also ends regular expressions and loops, even if the daemon is gone.
    runInNewContext('run()', { run: () => runJob(job, output) }, { timeout: job.limitMs });
  } catch (error) {
    output.line(failureOf(error, job));
  }
  output.flush();
}

void main();
