import { byTag } from '../support/clients/clients.ts';
import { remark } from './screen.ts';
import type { Visitor } from './visitor.ts';

/** How long a frozen process must be silent, in milliseconds. */
const SILENCE_MS = 400;
/** Output that a process wrote before the freeze may arrive later. */
const IN_FLIGHT_MS = 50;

export async function askForHealth({ rest }: Visitor): Promise<void> {
  await rest('GET /health');
}

/** The platform's first call: sets the token, and the variables of every process. */
export async function initialize({ rest }: Visitor): Promise<void> {
  const body = JSON.stringify({ defaultUser: 'root', envVars: { GREETING: 'hello' } });
  await rest('POST /init', { headers: { 'content-type': 'application/json' }, body });
}

export async function readMetrics({ rest }: Visitor): Promise<void> {
  await rest('GET /metrics');
}

/** A counting process stops while it is frozen and continues after the thaw. */
export async function freezeAndThaw({ quietly, rest }: Visitor): Promise<void> {
  const counter = new Counter();
  const counting = counter.run(quietly);
  await counter.passes(5);
  const { code } = JSON.parse(await rest('POST /freeze?maxWaitMs=1000'));
  if (code === 412) remark('Nothing can be frozen here: it counts on.');
  await new Promise((resolve) => setTimeout(resolve, IN_FLIGHT_MS));
  const frozenAt = counter.value;
  await new Promise((resolve) => setTimeout(resolve, SILENCE_MS));
  remark(`It counted to ${frozenAt}; ${SILENCE_MS} ms later it stands at ${counter.value}.`);
  await rest('POST /unfreeze');
  await counter.passes(frozenAt + 5);
  remark(`Thawed, it counts on: ${frozenAt + 1}, ${frozenAt + 2}, …`);
  await quietly.sendSignal({ process: byTag('count'), signal: 9 });
  await counting;
}

/** The daemon's own memory is collapsed into huge pages before a snapshot. */
export async function collapseMemory({ rest }: Visitor): Promise<void> {
  const { chunks, collapsed, alreadyHuge } = JSON.parse(await rest('POST /collapse'));
  remark(`${collapsed + alreadyHuge} of ${chunks} windows of 2 MiB are huge pages now.`);
}

/** A counting process, and its last number. */
class Counter {
  value = 0;
  #changed = Promise.withResolvers<void>();

  async run(service: Visitor['quietly']): Promise<void> {
    const script = 'i=0; while :; do i=$((i + 1)); echo $i; sleep 0.01; done';
    for await (const { event } of service.start({
      process: { cmd: 'sh', args: ['-c', script] },
      tag: 'count',
    })) {
      if (event?.event.case !== 'data') continue;
      const lines = Buffer.from(event.event.value.output.value ?? []).toString();
      this.value = Number(lines.trim().split('\n').at(-1));
      this.#changed.resolve();
      this.#changed = Promise.withResolvers();
    }
  }

  async passes(value: number): Promise<void> {
    while (this.value <= value) await this.#changed.promise;
  }
}
