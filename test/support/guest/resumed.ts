import { Guest } from './guest.ts';
import { Machine, type Snapshot } from './machine.ts';

const TOKEN = 'first';

/** A guest with its machine. */
export class RunningGuest extends Guest implements AsyncDisposable {
  readonly machine: Machine;

  constructor(machine: Machine, token: string | null = null) {
    super(machine.url, token);
    this.machine = machine;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.machine[Symbol.asyncDispose]();
  }
}

/** Resumes a snapshot, including the platform's first call. Changes are lost with the machine. */
export async function resumed(snapshot: Snapshot, more: object = {}): Promise<RunningGuest> {
  return initialised(await Machine.restore(snapshot), more);
}

/** The same in a directory of its own, so that the guest can be paused again. */
export async function resumedIn(directory: string, snapshot: Snapshot): Promise<RunningGuest> {
  return initialised(await Machine.fork(snapshot, directory), {});
}

async function initialised(machine: Machine, more: object): Promise<RunningGuest> {
  try {
    await machine.answers();
    const guest = new RunningGuest(machine);
    await guest.init({ accessToken: TOKEN, timestamp: new Date(), ...more });
    return guest;
  } catch (error) {
    await machine[Symbol.asyncDispose]();
    throw error;
  }
}
