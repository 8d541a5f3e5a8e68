import { printable } from '../../../output/printable.ts';
import { DirectoryModel } from '../files/directory-model.ts';
import { DirectoryTree } from '../files/directory-tree.ts';
import { Drafts } from '../files/drafts.ts';
import { Uploads } from '../files/uploads.ts';
import type { TableSort } from '../parts/data-table.tsx';
import type { Notices } from '../parts/notices.tsx';
import type { Questions } from '../parts/questions.tsx';
import type { Theme } from '../parts/theme.ts';
import { GuestMonitor } from '../state/guest-monitor.ts';
import { commandOf } from '../state/guest-snapshot.ts';
import { Observable } from '../state/observable.ts';
import { SandboxLease } from '../state/sandbox-lease.ts';
import type { TabStorage } from '../state/tab-storage.ts';
import { MAX_TABS, Terminals } from '../terminals/terminals.ts';
import type { ConsoleClient } from '../wire/console-client.ts';
import { DaemonClient } from '../wire/daemon-client.ts';
import type { ProcessMessage } from '../wire/messages.ts';
import type { OutputSource } from '../wire/output-source.ts';
import type { PagePlace, ViewName } from './place.ts';
import { resumeSandbox, type SandboxParts } from './sandbox-operations.ts';

/** What all of the page shares. */
export interface PageParts extends SandboxParts {
  readonly client: ConsoleClient;
  readonly storage: TabStorage;
  readonly theme: Observable<Theme>;
}

const MAX_TITLE = 40;
/** The first port that Linux gives to sockets that ask for none. */
const MIN_EPHEMERAL = 32_768;

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
  /** null: there is no gateway, so the sandbox has no time of its own. */
  readonly lease: SandboxLease | null;
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
    const say = (text: string, isError: boolean) => notices.say(printable(text), isError);
    const lease = sandbox === null ? null : new SandboxLease(list, sandbox, say);
    this.lease = lease;
    this.daemon = new DaemonClient(client, sandbox);
    this.monitor = new GuestMonitor(this.daemon, lease);
    this.terminals = new Terminals({ daemon: this.daemon, questions, lease, storage: kept });
    this.directory = new DirectoryModel(this.daemon, () => this.obstacle);
    this.tree = new DirectoryTree(this.daemon);
    this.uploads = new Uploads(this.daemon);
    this.drafts = new Drafts(kept);
    this.monitor.events.subscribe(() => this.#tellServer());
  }

  /** Why a call would fail, or wake a paused sandbox; null: nothing is known that is against it. */
  get obstacle(): string | null {
    return this.lease?.problem ?? null;
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

  /** Opens a tab with a shell; a paused sandbox is resumed before, if the user wants that. */
  async openShell(): Promise<void> {
    this.view.set('Terminals');
    const { sandbox } = this;
    if (this.lease?.obstacle === 'paused' && sandbox !== null) {
      const title = 'The sandbox is paused';
      const text = 'A terminal needs a sandbox that runs. It goes on for the time that it had left.';
      const answers = [{ name: 'resume', label: 'Resume it' }];
      if ((await this.questions.ask({ title, text, answers })) === null) return;
      if (!(await resumeSandbox(this.#parts, sandbox))) return;
    }
    if (!this.terminals.openShell()) this.#tellTooMany();
  }

  /** Shows what a process has written, and what it writes from now on. */
  showProcess(process: ProcessMessage): void {
    this.showOutput({ pid: process.pid }, process.tag ?? commandOf(process));
  }

  /** A server that has just started is told at once, unless its port is one that the kernel chooses. */
  #tellServer(): void {
    const [{ kind, text, port = MIN_EPHEMERAL } = { kind: 'end', text: '' }] = this.monitor.events.value;
    if (kind !== 'port' || port >= MIN_EPHEMERAL) return;
    const url = this.urlOfPort(port);
    this.notices.say(printable(text), false, url === null || this.isPrivate ? undefined : url);
  }

  /** Shows a process in a tab. */
  showOutput(source: OutputSource, title: string): void {
    if (this.terminals.open(source, title.slice(0, MAX_TITLE))) this.view.set('Terminals');
    else this.#tellTooMany();
  }

  #tellTooMany(): void {
    this.notices.say(`${MAX_TABS} tabs are the most: close one of them.`, true);
  }

  /** Whether the ports of the guest are reached by preview links alone. */
  get isPrivate(): boolean {
    return this.#parts.list.find(this.sandbox)?.network?.allowPublicTraffic === false;
  }

  /** What opens a port of the guest in a browser; of a private one a link that anyone may use for an hour. Throws `CallError`. */
  async linkTo(port: number): Promise<string> {
    if (this.isPrivate && this.sandbox !== null) return this.#parts.list.preview(this.sandbox, port);
    // Where no address is known, the port can be brought to the machine of the user.
    return this.urlOfPort(port) ?? `envctl forward ${port}`;
  }

  /** Where a browser reaches a port of the guest; null: that is not known. */
  urlOfPort(port: number): string | null {
    const { gatewayUrl } = this.#parts.client.about;
    if (gatewayUrl !== null) {
      const found = this.#parts.list.find(this.sandbox);
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
