import { hasKeptDrafts } from '../files/drafts.ts';
import { Observable } from '../state/observable.ts';
import { fragmentOf, NOWHERE, type PagePlace, placeOf, saysMore } from './place.ts';
import { type PageParts, Workspace } from './workspace.ts';

/** Keeps the address and what is shown the same, so that a reload, Back, Forward and a link lead to where the user was. */
export class Navigation {
  /** null: the list of sandboxes is shown. */
  readonly current: Observable<Workspace | null>;
  readonly #parts: PageParts;
  readonly #open = new Map<string | null, Workspace>();
  #isGoing = true;

  /** Goes where the address says, or else to what the console was started for. */
  constructor(parts: PageParts) {
    this.#parts = parts;
    this.current = new Observable<Workspace | null>(null);
    const { hasGateway, sandbox } = parts.client.about;
    const told = placeOf(location.hash);
    const isTold = told.view !== null || location.hash === '#/';
    this.#go(isTold ? told : { ...NOWHERE, sandbox, view: hasGateway && sandbox === null ? null : 'Glance' });
    const { pid, view } = told;
    const terminals = this.current.value?.terminals;
    // A link to a process whose tab is not here yet.
    if (view === 'Terminals' && pid !== null && !terminals?.choose(pid))
      terminals?.open({ pid }, `process ${pid}`);
    this.current.subscribe(() => this.#tell());
    this.#isGoing = false;
    this.#tell();
    window.addEventListener('popstate', () => this.#go(placeOf(location.hash)));
  }

  /** Shows a sandbox of the gateway, as it was left; null: the list. */
  show(sandbox: string | null): void {
    this.current.set(sandbox === null ? null : this.#workspace(sandbox));
  }

  /** Whether there are edits that are not saved, also of sandboxes that are not open. */
  get hasDrafts(): boolean {
    const isOpen = [...this.#open.values()].some(({ drafts }) => drafts.all.value.size > 0);
    return isOpen || hasKeptDrafts(this.#parts.storage);
  }

  #go(place: PagePlace): void {
    const { hasGateway } = this.#parts.client.about;
    const wasGoing = this.#isGoing;
    this.#isGoing = true;
    if (hasGateway && place.sandbox === null) this.current.set(null);
    else {
      const workspace = this.#workspace(hasGateway ? place.sandbox : null);
      workspace.go(place);
      this.current.set(workspace);
    }
    this.#isGoing = wasGoing;
    if (!wasGoing) this.#tell();
  }

  #workspace(sandbox: string | null): Workspace {
    const known = this.#open.get(sandbox);
    if (known) return known;
    const made = new Workspace(this.#parts, sandbox);
    this.#open.set(sandbox, made);
    const tell = () => this.#tell();
    const { current } = made.terminals;
    for (const each of [made.view, made.directory.listing, made.file]) each.subscribe(tell);
    let leaveTab = () => {};
    const followTab = () => {
      leaveTab();
      // The process of a new tab is known when it has started.
      leaveTab = current.value?.state.subscribe(tell) ?? (() => {});
    };
    followTab();
    current.subscribe(() => {
      followTab();
      tell();
    });
    return made;
  }

  /** Writes into the address where the user is. */
  #tell(): void {
    if (this.#isGoing) return;
    const place = this.current.value?.place ?? NOWHERE;
    const fragment = `#${fragmentOf(place)}`;
    if (fragment === location.hash) return;
    const isMore = location.hash === '' || saysMore(place, placeOf(location.hash));
    history[isMore ? 'replaceState' : 'pushState'](null, '', `/${fragment}`);
  }
}
