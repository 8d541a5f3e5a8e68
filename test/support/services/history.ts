import { Quota } from '../../../src/base/quota.ts';
import { History } from '../../../src/daemon/services/process/output/history.ts';
import { Output } from '../../../src/daemon/services/process/output/output.ts';
import { OutputStore } from '../../../src/daemon/services/process/output/output-store.ts';

/** The history of a single process, with a store of its own. */
export function historyOf(limitBytes: number): History {
  return new History(new OutputStore(limitBytes, limitBytes));
}

/** The output of a single process; `setPaused` pauses and resumes what writes it. */
export function outputOf(
  history: History,
  setPaused: (paused: boolean) => void = () => {},
  unread = new Quota(Number.POSITIVE_INFINITY),
): Output {
  const output = new Output(history, { unread, written: { stdout: 0, stderr: 0, pty: 0 } });
  output.attach({ setPaused });
  return output;
}
