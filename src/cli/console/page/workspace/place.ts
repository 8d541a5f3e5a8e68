export const VIEWS = ['Glance', 'Terminals', 'Processes', 'Files', 'Events'] as const;
export type ViewName = (typeof VIEWS)[number];

/** Where the user is on the page. */
export interface PagePlace {
  /** Behind the gateway; null: the list of sandboxes, or the daemon of the console. */
  readonly sandbox: string | null;
  /** null: the list of sandboxes. */
  readonly view: ViewName | null;
  /** The directory in Files; empty: not known yet. */
  readonly path: string;
  /** The path of the file that is shown in Files. */
  readonly file: string | null;
  /** The process that is shown in Terminals. */
  readonly pid: number | null;
}

export const NOWHERE: PagePlace = { sandbox: null, view: null, path: '', file: null, pid: null };

/** A place as the fragment of an address, such as `/Files?path=%2Fhome`. */
export function fragmentOf({ sandbox, view, path, file, pid }: PagePlace): string {
  const query = new URLSearchParams({
    ...(sandbox !== null && { sandbox }),
    ...(path !== '' && { path }),
    ...(file !== null && { file }),
    ...(pid !== null && { pid: String(pid) }),
  });
  return `/${view ?? ''}${query.size > 0 ? `?${query}` : ''}`;
}

/** The place that a fragment names; what it does not name is left out. */
export function placeOf(fragment: string): PagePlace {
  const [name = '', query = ''] = fragment.replace(/^#?\/?/, '').split('?', 2);
  const told = new URLSearchParams(query);
  const pid = Number(told.get('pid') ?? '');
  return {
    sandbox: told.get('sandbox'),
    view: VIEWS.find((view) => view === name) ?? null,
    path: told.get('path') ?? '',
    file: told.get('file'),
    pid: Number.isSafeInteger(pid) && pid > 0 ? pid : null,
  };
}

/** Whether a place only says more than another one, so that Back should not stop at the other. */
export function saysMore(place: PagePlace, before: PagePlace): boolean {
  return (
    place.sandbox === before.sandbox &&
    (before.view === null || place.view === before.view) &&
    place.file === before.file &&
    (before.path === '' || place.path === before.path) &&
    (before.pid === null || place.pid === before.pid)
  );
}
