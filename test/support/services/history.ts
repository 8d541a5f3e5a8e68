import { History } from '../../../src/daemon/services/process/output/history.ts';
import type { HistoryBudget } from '../../../src/daemon/services/process/output/history-budget.ts';
import { OutputStore } from '../../../src/daemon/services/process/output/output-store.ts';

/** The history of a single process, with a store of its own. */
export function historyOf(limitBytes: number, budget: HistoryBudget | null = null): History {
  return new History(new OutputStore(limitBytes, limitBytes), 1, limitBytes, budget);
}
