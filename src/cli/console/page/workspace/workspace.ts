import { DirectoryModel } from '../files/directory-model.ts';
import { DirectoryTree } from '../files/directory-tree.ts';
import { Drafts } from '../files/drafts.ts';
import { Uploads } from '../files/uploads.ts';
import type { TableSort } from '../parts/data-table.tsx';
import type { Notices } from '../parts/notices.tsx';
import type { Questions } from '../parts/questions.tsx';
import { GuestMonitor } from '../state/guest-monitor.ts';
import { commandOf } from '../state/guest-snapshot.ts';
import { Observable } from '../state/observable.ts';
import type { SandboxList } from '../state/sandbox-list.ts';
import type { TabStorage } from '../state/tab-storage.ts';
import { Terminals } from '../terminals/terminals.ts';
import type { ConsoleClient } from '../wire/console-client.ts';
import { DaemonClient } from '../wire/daemon-client.ts';
import type { ProcessMessage } from '../wire/messages.ts';
import type { OutputSource } from '../wire/output-source.ts';
import type { PagePlace, ViewName } from './place.ts';

/** What all of the page shares. */
export interface PageParts {
  readonly client: ConsoleClient;
  readonly list: SandboxList;
  readonly questions: Questions;
  readonly notices: Notices;
  readonly storage: TabStorage;
}

const MAX_TITLE = 40;

/** One sandbox on the page: what is known of it, and what is open in it. */
export class Workspace {
  readonly view = new Observable<ViewName>('Glance');
  /** The path of the file that is shown. */
  readonly file = new Observable<string | null>(null);
  readonly sortedFiles = new Observable<TableSort | null>(null);
  readonly sortedProcesses = new Observable<TableSort | null>(null);
  readonly name: string;
  readonly sandbox: string | null;
  readonly daemon: DaemonClient;
  readonly monitor: GuestMonitor;
  readonly terminals: Terminals;
  readonly directory: DirectoryModel;
  readonly tree: DirectoryTree;
  readonly uploads: Uploads;
  readonly drafts: Drafts;
  readonly questions: Questions;
  readonly notices: Notices;
  /** Whether a call would wake the sandbox. */
  readonly isPaused: () => boolean;
  readonly #parts: PageParts;

  /** `sandbox`: behind the gateway; null: the daemon of the console. */
  constructor(parts: PageParts, sandbox: string | null) {
    const { client, list, questions, notices, storage } = parts;
    const kept = storage.part(sandbox ?? '');
    this.#parts = parts;
    this.sandbox = sandbox;
    this.name = sandbox ?? client.about.name;
    this.questions = questions;
    this.notices = notices;
    this.isPaused = () => list.isPaused(sandbox);
    const mayCall = () => !this.isPaused();
    this.daemon = new DaemonClient(client, sandbox);
    this.monitor = new GuestMonitor(this.daemon, this.isPaused);
    this.terminals = new Terminals({ daemon: this.daemon, questions, mayCall, storage: kept });
    this.directory = new DirectoryModel(this.daemon, mayCall);
    this.tree = new DirectoryTree(this.daemon);
    this.uploads = new Uploads(this.daemon);
    this.drafts = new Drafts(kept);
  }

  get place(): PagePlace {
    const view = this.view.value;
    const isFiles = view === 'Files';
    return {
      ...{ sandbox: this.sandbox, view },
      path: isFiles ? this.directory.listing.value.path : '',
      file: isFiles ? this.file.value : null,
      pid: view === 'Terminals' ? (this.terminals.current.value?.state.value.pid ?? null) : null,
    };
  }

  /** Shows a place in it. */
  go({ view, path, file, pid }: PagePlace): void {
    if (view === 'Files') {
      this.file.set(file);
      if (path !== '' && path !== this.directory.listing.value.path) {
        if (this.view.value === 'Files' && this.directory.isOpen) void this.directory.open(path);
        else this.directory.aim(path);
      }
    }
    if (view === 'Terminals' && pid !== null) this.terminals.choose(pid);
    this.view.set(view ?? 'Glance');
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
