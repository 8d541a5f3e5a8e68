import type { Allowance } from '../../../../base/allowance.ts';
import type { Lanes } from '../../../linux/lanes/lanes.ts';
import { describeInterpreter } from '../../../linux/processes/interpreter.ts';
import { NoDirectory, NotExecuted } from '../../../linux/processes/spawn.ts';
import type { Guest } from '../../guest/guest.ts';
import type { ManagedProcess } from './process.ts';
import { type Plan, planLaunch, type StartRequest } from './start.ts';

const BASH = '/bin/bash';
const SH = '/bin/sh';

/** Where a start is planned. */
export interface LaunchPlace {
  readonly guest: Guest;
  readonly daemonPath: string;
  readonly lanes: Lanes;
}

/**
 * Plans and launches a start, and what `otherPlan` has in place of a plan that fails. Throws the first error for which that
 * has nothing.
 */
export async function launchPlanned<T>(
  request: StartRequest,
  place: LaunchPlace,
  launch: (plan: Plan) => Promise<T>,
): Promise<T> {
  for (let plan = await planIn(place, request); ; ) {
    try {
      return await launch(plan);
    } catch (error) {
      plan = await otherPlan(error, plan, request, place);
    }
  }
}

function planIn({ guest, daemonPath, lanes }: LaunchPlace, request: StartRequest): Promise<Plan> {
  return planLaunch(request, guest, daemonPath, lanes);
}

/**
 * In `/`, when no directory was asked for and the user's home is missing; /bin/sh, when there is no /bin/bash. Otherwise
 * throws the error, with the interpreter that the file needs.
 */
async function otherPlan(
  error: unknown,
  plan: Plan,
  request: StartRequest,
  place: LaunchPlace,
): Promise<Plan> {
  const { config } = request;
  const asksForNone = !config.cwd && place.guest.defaultWorkdir === null;
  if (error instanceof NoDirectory && asksForNone && plan.cwd !== '/')
    return planIn(place, { ...request, config: { ...config, cwd: '/' } });
  if (!(error instanceof NotExecuted)) throw error;
  if (error.isMissing && plan.file === BASH) return { ...plan, file: SH, args: [SH, ...plan.args.slice(1)] };
  const interpreter = await describeInterpreter(plan.file, place.lanes);
  if (interpreter === null) throw error;
  const hint = interpreter.endsWith("\\r'") ? ', a line of Windows: end it without \\r' : '';
  throw new NotExecuted(error.kind, `${error.message}: ${interpreter}${hint}`, { cause: error });
}

/**
 * Frees the place of a process at its end, or when it cannot be started. Not a closure of the start, which would hold the request with
 * all its arguments as long as the process runs.
 */
export function freePlaceAfter(launch: Promise<ManagedProcess>, places: Allowance): void {
  const free = () => places.release(1);
  void launch.then(({ ended }) => ended.then(free), free);
}
