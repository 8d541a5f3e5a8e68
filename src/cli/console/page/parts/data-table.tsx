import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { type MenuPlace, PageMenu } from './page-menu.tsx';

/** A column of a table; `width`: of a CSS grid. */
export interface DataColumn<T> {
  readonly title: string;
  readonly width: string;
  readonly isNumber?: boolean;
  /** Left out where the page is narrow. */
  readonly isWide?: boolean;
  cell(row: T): ComponentChildren;
  /** By what a click on the header sorts, in ascending order. */
  compare?(one: T, other: T): number;
}

/** The column that a table is sorted by. */
export interface TableSort {
  readonly title: string;
  readonly isDescending: boolean;
}

/** The order of two texts, without the rules of a language. */
export function byText(one = '', other = ''): number {
  return one < other ? -1 : Number(one > other);
}

/** The rows in the order of a column; without one, as they are. */
export function sortedRows<T>(
  rows: readonly T[],
  columns: readonly DataColumn<T>[],
  sort: TableSort | null,
): readonly T[] {
  const compare = columns.find(({ title }) => title === sort?.title)?.compare;
  if (!compare) return rows;
  return rows.toSorted(sort?.isDescending ? (one, other) => compare(other, one) : compare);
}

/** What the next click on a header does: numbers begin with the greatest one, and the third click ends it. */
function nextSort<T>({ title, isNumber = false }: DataColumn<T>, sort: TableSort | null): TableSort | null {
  if (sort?.title !== title) return { title, isDescending: isNumber };
  return sort.isDescending === isNumber ? { title, isDescending: !isNumber } : null;
}

interface DataTableProps<T> {
  readonly label: string;
  readonly columns: readonly DataColumn<T>[];
  readonly rows: readonly T[];
  /** The keys of the rows that are selected: the first is where a range begins, the last where it ends. */
  readonly selected: readonly string[];
  /** Whether several can be, by Shift and Ctrl. */
  readonly hasSeveral?: boolean;
  /** What can be done with what is selected, for a menu at the pointer. */
  readonly menu?: ComponentChildren;
  keyOf(row: T): string;
  onSelect(keys: readonly string[]): void;
  readonly sort?: TableSort | null;
  onSort?(sort: TableSort | null): void;
  /** Enter, or a double click. */
  onOpen(row: T): void;
  /** Any other key; the row is the selected one. */
  onKey?(event: KeyboardEvent, row: T | undefined): void;
}

const ROW_PX = 30;
/** Rows that are drawn above and below what is visible. */
const MARGIN_ROWS = 10;
/** The number of a table on the page does not matter, as there is one at a time. */
const ROW_ID = 'row-';

/** A table of any length: only the rows that are visible are in the page. */
export function DataTable<T>(props: DataTableProps<T>) {
  const { label, columns, rows, selected, keyOf } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const [top, height] = useWindow(scroller);
  const [menuAt, setMenuAt] = useState<MenuPlace | null>(null);
  const chosen = rows.findIndex((row) => keyOf(row) === selected.at(-1));
  useEffect(() => reveal(scroller.current, chosen), [selected.at(-1)]);
  const first = Math.max(0, Math.floor(top / ROW_PX) - MARGIN_ROWS);
  const last = Math.min(rows.length, Math.ceil((top + height) / ROW_PX) + MARGIN_ROWS);
  const template = (isNarrow: boolean) =>
    columns.flatMap(({ width, isWide }) => (isNarrow && isWide ? [] : [width])).join(' ');
  return (
    <>
      <div
        class="table"
        ref={scroller}
        role="grid"
        tabIndex={0}
        aria-label={label}
        aria-rowcount={rows.length + 1}
        aria-multiselectable={props.hasSeveral}
        aria-activedescendant={chosen >= first && chosen < last ? ROW_ID + chosen : undefined}
        onKeyDown={(event) => handleKey(event, props, chosen)}
        onContextMenu={(event) => {
          const row = rows[rowIndexAt(event)];
          if (!props.menu || (!row && selected.length === 0)) return;
          event.preventDefault();
          if (row && !selected.includes(keyOf(row))) props.onSelect([keyOf(row)]);
          setMenuAt({ x: event.clientX, y: event.clientY });
        }}
        style={{ '--columns': template(false), '--narrow': template(true) }}
      >
        <div class="row head" role="row" aria-rowindex={1}>
          {columns.map((column) => (
            <Header key={column.title} column={column} table={props} />
          ))}
        </div>
        <div
          role={rows.length > 0 ? 'rowgroup' : undefined}
          class="rows"
          style={{ height: `${rows.length * ROW_PX}px` }}
        >
          {rows.slice(first, last).map((row, index) => (
            <Row key={keyOf(row)} {...{ row, index: first + index, table: props }} />
          ))}
        </div>
      </div>
      {menuAt && (
        <PageMenu at={menuAt} label={`Actions in ${label}`} onClose={() => setMenuAt(null)}>
          {props.menu}
        </PageMenu>
      )}
    </>
  );
}

interface HeaderProps<T> {
  readonly column: DataColumn<T>;
  readonly table: DataTableProps<T>;
}

function Header<T>({ column, table: { sort = null, onSort } }: HeaderProps<T>) {
  const { title, compare } = column;
  const direction = sort?.title !== title ? 'none' : sort.isDescending ? 'descending' : 'ascending';
  if (!compare || !onSort)
    return (
      <div role="columnheader" class={classOf(column)}>
        {title}
      </div>
    );
  return (
    <div role="columnheader" class={classOf(column)} aria-sort={direction}>
      <button type="button" class={`plain sort ${direction}`} onClick={() => onSort(nextSort(column, sort))}>
        {title}
      </button>
    </div>
  );
}

interface RowProps<T> {
  readonly row: T;
  readonly index: number;
  readonly table: DataTableProps<T>;
}

function Row<T>({ row, index, table }: RowProps<T>) {
  const { columns, keyOf, selected, onSelect, onOpen } = table;
  const key = keyOf(row);
  const isSelected = selected.includes(key);
  return (
    <div
      class={isSelected ? 'row selected' : 'row'}
      role="row"
      id={ROW_ID + index}
      aria-rowindex={index + 2}
      aria-selected={isSelected}
      style={{ top: `${index * ROW_PX}px` }}
      onClick={(event) => {
        onSelect(selectedWith(key, event, table));
        if (isTapOnFirst(event)) onOpen(row);
      }}
      onDblClick={() => onOpen(row)}
    >
      {columns.map((column) => (
        <div key={column.title} role="gridcell" class={classOf(column)}>
          {column.cell(row)}
        </div>
      ))}
    </div>
  );
}

/** One tap on the first cell opens a row, because a finger makes no double click; elsewhere it chooses the row. */
function isTapOnFirst({ target, pointerType }: MouseEvent & { readonly pointerType?: string }): boolean {
  return pointerType === 'touch' && target instanceof Element && !!target.closest('.cell:first-child');
}

function classOf({ isNumber, isWide }: { readonly isNumber?: boolean; readonly isWide?: boolean }): string {
  return `cell${isNumber ? ' number' : ''}${isWide ? ' wide' : ''}`;
}

/** What is selected after a click on a row, or after a key has led to it. */
function selectedWith<T>(
  key: string,
  { shiftKey, ctrlKey, metaKey }: MouseEvent | KeyboardEvent,
  { rows, keyOf, selected, hasSeveral = false }: DataTableProps<T>,
): readonly string[] {
  const keys = rows.map(keyOf);
  const [from, to] = [keys.indexOf(selected[0] ?? key), keys.indexOf(key)];
  if (hasSeveral && shiftKey && from >= 0)
    return from <= to ? keys.slice(from, to + 1) : keys.slice(to, from + 1).reverse();
  if (!hasSeveral || !(ctrlKey || metaKey)) return [key];
  return selected.includes(key) ? selected.filter((each) => each !== key) : [...selected, key];
}

/** The row that an event is in; -1: none. */
function rowIndexAt({ target }: Event): number {
  const row = target instanceof Element ? target.closest('.rows .row') : null;
  return row ? Number(row.id.slice(ROW_ID.length)) : -1;
}

/** What is visible of a scroller, in pixels. */
function useWindow(scroller: {
  readonly current: HTMLElement | null;
}): readonly [top: number, height: number] {
  const [visible, setVisible] = useState<readonly [number, number]>([0, 600]);
  useEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const look = () => setVisible([element.scrollTop, element.clientHeight]);
    const observer = new ResizeObserver(look);
    observer.observe(element);
    element.addEventListener('scroll', look, { passive: true });
    return () => observer.disconnect();
  }, []);
  return visible;
}

function reveal(scroller: HTMLElement | null, index: number): void {
  if (!scroller || index < 0) return;
  const [top, bottom] = [index * ROW_PX, (index + 2) * ROW_PX];
  if (top < scroller.scrollTop) scroller.scrollTop = top;
  else if (bottom > scroller.scrollTop + scroller.clientHeight)
    scroller.scrollTop = bottom - scroller.clientHeight;
}

function handleKey<T>(event: KeyboardEvent, props: DataTableProps<T>, chosen: number): void {
  // A button in a row has its own keys.
  if (event.target !== event.currentTarget || event.altKey || event.ctrlKey || event.metaKey) return;
  const { rows, keyOf, onSelect, onOpen, onKey } = props;
  const page = Math.max(1, Math.floor((event.currentTarget as HTMLElement).clientHeight / ROW_PX) - 2);
  const steps: Readonly<Record<string, number>> = {
    ...{ ArrowDown: chosen + 1, ArrowUp: Math.max(0, chosen - 1), Home: 0, End: rows.length - 1 },
    ...{ PageDown: chosen + page, PageUp: Math.max(0, chosen - page) },
  };
  const step = steps[event.key];
  const row = rows[chosen];
  if (step !== undefined) {
    event.preventDefault();
    const next = rows[Math.min(step, rows.length - 1)];
    if (next) onSelect(selectedWith(keyOf(next), event, props));
  } else if (event.key === 'Enter' && row) {
    event.preventDefault();
    onOpen(row);
  } else onKey?.(event, row);
}
