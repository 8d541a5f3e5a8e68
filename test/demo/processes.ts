import { byPid, byTag, transcribe } from '../support/clients/clients.ts';
import { remark } from './screen.ts';
import type { Visitor } from './visitor.ts';

const bytes = (text: string) => new TextEncoder().encode(text);

/** Output arrives while the command runs, stdout and stderr apart, the exit code at the end. */
export async function streamOutput({ process }: Visitor): Promise<void> {
  const script = 'for i in 1 2 3; do echo "$GREETING $i"; sleep 0.2; done; echo "a complaint" >&2; exit 3';
  await transcribe(process.start({ process: { cmd: 'sh', args: ['-c', script] } }));
}

/** A process is addressed by its pid or by a tag that the client chooses. */
export async function feedStdin({ process }: Visitor): Promise<void> {
  const script = 'while read word; do echo "you said $word"; done';
  const named = { process: byTag('counter') };
  await transcribe(
    process.start({ process: { cmd: 'bash', args: ['-c', script] }, tag: 'counter' }),
    async ({ case: kind }) => {
      if (kind === 'start') {
        await process.sendInput({ ...named, input: { input: { case: 'stdin', value: bytes('hello\n') } } });
      }
      if (kind === 'data') await process.closeStdin(named);
    },
  );
}

/** A shell in a terminal: it prompts, echoes the input, and learns of a new size. */
export async function useTerminal({ process }: Visitor): Promise<void> {
  const shell = { cmd: 'bash', args: ['--norc', '--noediting', '-i'], envs: { PS1: '$ ', TERM: 'dumb' } };
  const lines = ['stty size', 'stty size', 'exit'];
  let shown = '';
  let pid = 0;
  await transcribe(
    process.start({ process: shell, pty: { size: { cols: 80, rows: 24 } } }),
    async ({ case: kind, value }) => {
      if (kind === 'start') pid = value.pid;
      if (kind !== 'data') return;
      shown += Buffer.from(value.output.value ?? []).toString();
      if (!shown.endsWith('$ ')) return;
      shown = '';
      if (lines.length === 2) {
        await process.update({ process: byPid(pid), pty: { size: { cols: 132, rows: 43 } } });
      }
      const input = { case: 'pty', value: bytes(`${lines.shift()}\n`) } as const;
      await process.sendInput({ process: byPid(pid), input: { input } });
    },
  );
}

/** A missing command is refused with a reason before anything is started. */
export async function meetAnError({ process, rest }: Visitor): Promise<void> {
  await transcribe(process.start({ process: { cmd: 'no-such-program' } })).catch(() => {});
  await process.sendSignal({ process: byPid(4_000_000), signal: 15 }).catch(() => {});
  await rest('GET /files?path=/no/such/file');
  remark('An error names what was wrong; its code is for programs, its message for people.');
}
