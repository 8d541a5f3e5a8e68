import { DirectoryModel } from '../files/directory-model.ts';
import { DirectoryTree } from '../files/directory-tree.ts';
import { Uploads } from '../files/uploads.ts';
import type { Notices } from '../parts/notices.tsx';
import type { Questions } from '../parts/questions.tsx';
import { GuestMonitor } from '../state/guest-monitor.ts';
import { commandOf } from '../state/guest-snapshot.ts';
import { Observable } from '../state/observable.ts';
import type { SandboxList } from '../state/sandbox-list.ts';
import { Terminals } from '../terminals/terminals.ts';
import type { ConsoleClient } from '../wire/console-client.ts';
import { DaemonClient } from '../wire/daemon-client.ts';
import type { ProcessMessage } from '../wire/messages.ts';
import type { OutputSource } from '../wire/output-follower.ts';

export const VIEWS = ['Glance', 'Terminals', 'Processes', 'Files', 'Events'] as const;
export type ViewName = (typeof VIEWS)[number];

/** What all of the page shares. */
export interface PageParts {
  readonly client: ConsoleClient;
  readonly list: SandboxList;
  readonly questions: Questions;
  readonly notices: Notices;
}

const MAX_TITLE = 40;

/** One sandbox on the page: what is known of it, and what is open in it. */
export class Workspace {
  readonly view = new Observable<ViewName>('Glance');
  readonly name: string;
  readonly sandbox: string | null;
  readonly daemon: DaemonClient;
  readonly monitor: GuestMonitor;
  readonly terminals: Terminals;
  readonly directory: DirectoryModel;
  readonly tree: DirectoryTree;
  readonly uploads: Uploads;
  readonly questions: Questions;
  readonly notices: Notices;
  /** Whether a call would wake the sandbox. */
  readonly isPaused: () => boolean;
  readonly #parts: PageParts;

  /** `sandbox`: behind the gateway; null: the daemon of the console. */
  constructor(parts: PageParts, sandbox: string | null) {
    const { client, list, questions, notices } = parts;
    this.#parts = parts;
    this.sandbox = sandbox;
    this.name = sandbox ?? client.about.name;
    this.questions = questions;
    this.notices = notices;
    this.isPaused = () => list.isPaused(sandbox);
    const mayCall = () => !this.isPaused();
    this.daemon = new DaemonClient(client, sandbox);
    this.monitor = new GuestMonitor(this.daemon, this.isPaused);
    this.terminals = new Terminals(this.daemon, questions, mayCall);
    this.directory = new DirectoryModel(this.daemon, mayCall);
    this.tree = new DirectoryTree(this.daemon);
    this.uploads = new Uploads(this.daemon);
  }

  /** Shows what a process has written, and what it writes from now on. */
  showProcess(process: ProcessMessage): void {
    this.showOutput({ pid: process.pid }, process.tag ?? commandOf(process));
  }

  /** Shows a process in a tab. */
  showOutput(source: OutputSource, title: string): void {
    if (this.terminals.open(source, title.slice(0, MAX_TITLE))) this.view.set('Terminals');
    else this.notices.say('too many tabs are open: close one of them', true);
  }

  /** Where a browser reaches a port of the guest; null: that is not known. */
  urlOfPort(port: number): string | null {
    const { gatewayUrl } = this.#parts.client.about;
    if (gatewayUrl !== null) {
      const found = this.#parts.list.state.value.sandboxes.find(
        ({ sandboxID }) => sandboxID === this.sandbox,
      );
      if (!found?.domain) return null;
      const gateway = new URL(gatewayUrl);
      return urlOf(gateway.protocol, `${port}-${found.sandboxID}.${found.domain}`, gateway.port);
    }
    const address = this.monitor.state.value.ports?.address;
    return address ? urlOf('http:', address, String(port)) : null;
  }
}

/** A URL of a host and a port; null when the host is none. */
function urlOf(protocol: string, host: string, port: string): string | null {
  if (!/^[\w.:[\]-]+$/.test(host)) return null;
  return URL.parse(`${protocol}//${host}${port === '' ? '' : `:${port}`}/`)?.href ?? null;
}
