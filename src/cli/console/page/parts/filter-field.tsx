interface FilterProps {
  /** What is filtered, in the plural. */
  readonly what: string;
  readonly value: string;
  onFilter(text: string): void;
}

export function FilterField({ what, value, onFilter }: FilterProps) {
  return (
    <input
      type="search"
      aria-label={`Filter ${what}`}
      placeholder="Filter"
      value={value}
      onInput={({ currentTarget }) => onFilter(currentTarget.value)}
    />
  );
}
