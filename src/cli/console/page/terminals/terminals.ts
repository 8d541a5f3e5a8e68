import type { Questions } from '../parts/questions.tsx';
import { Observable } from '../state/observable.ts';
import type { DaemonClient } from '../wire/daemon-client.ts';
import type { StartMessage } from '../wire/messages.ts';
import type { OutputSource } from '../wire/output-follower.ts';
import { TerminalTab } from './terminal-tab.ts';

const SHELL: StartMessage = {
  process: { cmd: '/bin/bash', args: ['-l'], envs: { TERM: 'xterm-256color', COLORTERM: 'truecolor' } },
  pty: { size: { cols: 80, rows: 24 } },
};
const MAX_TABS = 12;

/** The tabs of a sandbox. */
export class Terminals {
  readonly tabs = new Observable<readonly TerminalTab[]>([]);
  readonly current = new Observable<TerminalTab | null>(null);
  readonly #daemon: DaemonClient;
  readonly #questions: Questions;
  readonly #mayCall: () => boolean;

  constructor(daemon: DaemonClient, questions: Questions, mayCall: () => boolean) {
    this.#daemon = daemon;
    this.#questions = questions;
    this.#mayCall = mayCall;
  }

  openShell(): void {
    this.open({ start: SHELL, user: '' }, 'bash');
  }

  /** Opens a tab; for a process that has one already, shows that. Returns false when there are too many. */
  open(source: OutputSource, title: string): boolean {
    const known = this.tabs.value.find(
      ({ state }) => 'pid' in source && state.value.pid === source.pid && state.value.status !== 'ended',
    );
    if (known) this.current.set(known);
    else if (this.tabs.value.length >= MAX_TABS) return false;
    else {
      const onLink = (url: string) => void this.#openLink(url);
      const tab = new TerminalTab(this.#daemon, { source, title, mayCall: this.#mayCall, onLink });
      this.tabs.update((tabs) => [...tabs, tab]);
      this.current.set(tab);
      void tab.start();
    }
    return true;
  }

  /** Closes a tab; asks what becomes of the process. */
  async close(tab: TerminalTab): Promise<void> {
    const { pid, status, title } = tab.state.value;
    if (pid !== null && status !== 'ended') {
      const answer = await this.#questions.ask({
        title: `Close ${title}?`,
        text: `The process ${pid} runs.`,
        answers: [
          { name: 'leave', label: 'Leave it running' },
          { name: 'kill', label: 'Kill it', isDanger: true },
        ],
      });
      if (answer === null) return;
      if (answer.answer === 'kill')
        await this.#daemon
          .unary('process.Process/SendSignal', { process: { pid }, signal: 'SIGNAL_SIGKILL' })
          .catch(() => {});
    }
    tab.close();
    const rest = this.tabs.value.filter((each) => each !== tab);
    this.tabs.set(rest);
    if (this.current.value === tab) this.current.set(rest.at(-1) ?? null);
  }

  /** Opens an address that a program has written, if the user wants that. */
  async #openLink(url: string): Promise<void> {
    const answers = [{ name: 'yes', label: 'Open it' }];
    const title = 'Open an address that the program has written?';
    if (await this.#questions.ask({ title, text: url, answers }))
      window.open(url, '_blank', 'noopener,noreferrer');
  }
}
