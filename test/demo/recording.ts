/**
 * Records a minute with envctl against a real daemon, as docs/recording.svg. `npm run demo -- --recording` gives it mounts of its own, in which the
 * home of root is empty.
 */
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startDaemon } from '../support/programs/daemon.ts';
import { envctlCommand } from '../support/programs/programs.ts';
import { filmOf } from './recording/film.ts';
import { Recorder } from './recording/recorder.ts';

const FILM = fileURLToPath(new URL('../../docs/recording.svg', import.meta.url));
const SIZE = { cols: 90, rows: 22 };

const directory = mkdtempSync(join(tmpdir(), 'envd-recording-'));
try {
  await record();
} finally {
  rmSync(directory, { recursive: true, force: true });
}

async function record(): Promise<void> {
  await using daemon = await startDaemon();
  const [node, program] = envctlCommand();
  const bin = join(directory, 'bin');
  mkdirSync(bin);
  writeFileSync(join(bin, 'envctl'), `#!/bin/sh\nexec '${node}' '${program}' "$@"\n`);
  chmodSync(join(bin, 'envctl'), 0o755);
  const work = join(directory, 'work');
  mkdirSync(join(work, 'project'), { recursive: true });
  writeFileSync(join(work, 'project/poem.txt'), 'roses are red\nviolets are blue\n');
  writeFileSync(join(work, 'project/data.bin'), Buffer.alloc(700 * 1024 * 1024));
  const env = {
    PATH: `${bin}:${dirname(node)}:${process.env.PATH}`,
    HOME: directory,
    ENVCTL_URL: daemon.url,
    NODE_COMPILE_CACHE: join(directory, 'cache'),
    LANG: 'C.UTF-8',
  };
  process.chdir(work);
  const recorder = new Recorder(SIZE, env, '$ ');
  await recorder.ready();
  await recorder.run('envctl doctor | head -5');
  await recorder.run(`envctl run sh -c 'echo "hello from $(uname -s)"; exit 3'; echo "exit code $?"`);
  await recorder.run('seq 1 100000 | envctl run wc -l');
  await recorder.run('envctl cp project :');
  await recorder.run('envctl ls -l :project');
  await recorder.run("envctl grep 'r.d' :project -n '*.txt'");
  await recorder.run('envctl run --detach --tag job sleep 600');
  await recorder.run('envctl ps');
  await recorder.run('envctl shell', '# ');
  await recorder.run('stty size; cat project/poem.txt', 'blue');
  await recorder.run('exit');
  await recorder.run('envctl pause-test');
  await recorder.run('envctl kill -s INT job; envctl wait job; echo "exit code $?"');
  await recorder.run('envctl console', 'ends the console');
  const stills = recorder.end();
  writeFileSync(FILM, filmOf(stills, { ...SIZE, title: 'A minute with envctl, recorded' }));
}
