import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

/** A place in the window, in pixels. */
export interface MenuPlace {
  readonly x: number;
  readonly y: number;
}

interface MenuProps {
  readonly at: MenuPlace;
  readonly label: string;
  readonly children: ComponentChildren;
  onClose(): void;
}

/** Buttons over the page. The browser closes it by Escape and by a click elsewhere, and a button of it does, too. */
export function PageMenu({ at, label, children, onClose }: MenuProps) {
  const menu = useRef<HTMLDivElement>(null);
  useEffect(() => {
    menu.current?.showPopover();
    menu.current?.querySelector<HTMLElement>('button:enabled')?.focus();
  }, []);
  return (
    <div
      ref={menu}
      popover="auto"
      class="menu"
      role="group"
      aria-label={label}
      style={{ left: `min(${at.x}px, 100vw - 12rem)`, top: `min(${at.y}px, 100vh - 12rem)` }}
      onToggle={({ newState }) => newState === 'closed' && onClose()}
      onClick={(event) => {
        event.stopPropagation();
        menu.current?.hidePopover();
      }}
    >
      {children}
    </div>
  );
}
