import { openSync } from 'node:fs';
import { join } from 'node:path';
import { create } from '@bufbuild/protobuf';
import { expect, test } from 'vitest';
import { EnvdError } from '../../../../../src/base/errors.ts';
import { Disk } from '../../../../../src/daemon/extensions/lasting-output/disk.ts';
import { LastingOutputs } from '../../../../../src/daemon/extensions/lasting-output/lasting-outputs.ts';
import type { OpenFile } from '../../../../../src/daemon/linux/files/open-file.ts';
import { Lanes } from '../../../../../src/daemon/linux/lanes/lanes.ts';
import { WriteGate } from '../../../../../src/daemon/services/pause/write-gate.ts';
import type { ProcessTable } from '../../../../../src/daemon/services/process/table.ts';
import { RecordStore } from '../../../../../src/daemon/services/records/record-store.ts';
import { KeepOutputSchema } from '../../../../../src/gen/process/process_pb.js';
import { scratch } from '../../../../support/machine/scratch.ts';

class FileDisk extends Disk {
  override async open(): Promise<OpenFile> {
    return this.own(openSync(join(scratch(), 'file'), 'w+'));
  }
}

test('nobody finds the output of a process that has not begun, which has no pid yet', async () => {
  const disk = new FileDisk(null, new Lanes({ limitMs: 10_000, threads: 4 }), new WriteGate());
  const processes = {
    findRetained() {
      throw new EnvdError('not_found', 'process with pid 0 not found');
    },
  } as unknown as ProcessTable;
  const never = new AbortController().signal;
  const outputs = new LastingOutputs(processes, new RecordStore(null, {}, () => {}), disk, 2 ** 30, never);
  using _ = await outputs.prepare(create(KeepOutputSchema), false);
  expect(() => outputs.find({ pid: 0 })).toThrow('process with pid 0 not found');
});
