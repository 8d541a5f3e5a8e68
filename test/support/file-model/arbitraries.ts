// Random trees, paths and operations.
import fc from 'fast-check';

/** The prefix of metadata in the names of extended attributes. */
export const METADATA = 'user.svc.';

/** An unprivileged user with an entry in /etc/passwd of every Debian, and another one. */
export const [ADA, BOB] = [65_534, 1];
const OWNERS = [0, ADA, BOB];

/** The longest name that a file system takes. */
const LONG = 'n'.repeat(255);
/** Few names, so that paths meet; one is no UTF-8. */
const NAMES = ['a', 'b', 'c', 'd', 'a', 'b', 'c', '\xff', LONG, 'e\xc3\xa9'];

/** How a path is written: from a node of the tree, by its number, or from nothing, and then more names. */
export interface PathSpec {
  readonly start: number | null;
  readonly tail: readonly string[];
  /** How it begins: as it is, through links of /proc, or relative. */
  readonly by: 'itself' | 'self root' | 'cwd of root' | 'cwd of ada' | 'fd of root' | 'held' | 'relative';
  readonly end: '' | '/' | '/.' | '/..';
  /** `//`, `.` and `..` in between. */
  readonly noise: number;
  /** Bytes that it is filled up to. */
  readonly length: number | null;
}

const common = fc.constantFrom('itself' as const);
const throughProc = fc.constantFrom<PathSpec['by']>(
  'self root',
  'cwd of root',
  'cwd of ada',
  'fd of root',
  'held',
);
const nothing = fc.constant(null);
const name = fc.constantFrom(...NAMES);

const pathSpec = (parts: readonly string[], by: fc.Arbitrary<PathSpec['by']>): fc.Arbitrary<PathSpec> => {
  const part = fc.oneof({ weight: 4, arbitrary: name }, fc.constantFrom(...parts));
  return fc.record({
    start: fc.oneof({ weight: 9, arbitrary: fc.nat(30) }, nothing),
    tail: fc.oneof(
      { weight: 3, arbitrary: fc.constant([]) },
      { weight: 2, arbitrary: fc.array(part, { minLength: 1, maxLength: 1 }) },
      fc.array(part, { maxLength: 3 }),
    ),
    by,
    end: fc.oneof({ weight: 5, arbitrary: fc.constant('' as const) }, fc.constantFrom('/', '/.', '/..')),
    noise: fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, fc.nat(255)),
    length: fc.oneof({ weight: 60, arbitrary: nothing }, fc.constantFrom(4094, 4095, 4096, 4097)),
  });
};

/** A path as a client sends it. */
const clientPath = pathSpec(NAMES, fc.oneof({ weight: 12, arbitrary: common }, throughProc));
/** The text of a link. */
const target = pathSpec(
  [...NAMES, '..', '..', '.', ''],
  fc.oneof(
    { weight: 6, arbitrary: common },
    { weight: 4, arbitrary: fc.constant('relative' as const) },
    throughProc,
  ),
);

export interface PlantSpec {
  readonly kind: 'directory' | 'file' | 'hard link' | 'fifo' | 'link' | 'chain';
  /** The directory it is in, by number. */
  readonly where: number;
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
  readonly mode: number;
  readonly target: PathSpec;
  /** Links of a chain: 40 are followed. */
  readonly links: number;
  /** Extended attributes of a file or directory. */
  readonly attributes: readonly (readonly [name: string, value: string])[];
}

/** Two that are metadata, and one that is not. */
const attributes = fc.oneof(
  { weight: 2, arbitrary: fc.constant([]) },
  fc
    .subarray([`${METADATA}a`, `${METADATA}b`, 'user.other'])
    .map((names) => names.map((name) => [name, `of ${name}`] as const)),
);

const MODES = [
  0o755, 0o755, 0o777, 0o700, 0o711, 0o733, 0o750, 0o770, 0o1777, 0o2775, 0o500, 0, 0o644, 0o666, 0o600,
  0o4755, 0o6777,
];

const plant: fc.Arbitrary<PlantSpec> = fc.record({
  kind: fc.oneof(
    { weight: 5, arbitrary: fc.constant('directory' as const) },
    { weight: 5, arbitrary: fc.constant('link' as const) },
    { weight: 3, arbitrary: fc.constant('file' as const) },
    { weight: 1, arbitrary: fc.constantFrom('hard link' as const, 'fifo' as const) },
    { weight: 1, arbitrary: fc.constant('chain' as const) },
  ),
  where: fc.nat(12),
  name,
  uid: fc.constantFrom(...OWNERS),
  gid: fc.constantFrom(...OWNERS),
  mode: fc.constantFrom(...MODES),
  target,
  links: fc.constantFrom(2, 39, 40, 41),
  attributes,
});

export interface OperationSpec {
  readonly kind:
    | 'Stat'
    | 'ListDir'
    | 'MakeDir'
    | 'Move'
    | 'Remove'
    | 'upload'
    | 'multipart'
    | 'download'
    | 'compose'
    | 'compose two'
    | 'watch';
  readonly path: PathSpec;
  readonly second: PathSpec;
  readonly third: PathSpec;
  readonly caller: 'root' | 'nobody' | 'daemon';
  /** Sent with an upload. */
  readonly metadata: Readonly<Record<string, string>>;
}

const operation: fc.Arbitrary<OperationSpec> = fc.record({
  kind: fc.constantFrom(
    'Stat',
    'ListDir',
    'MakeDir',
    'Move',
    'Move',
    'Remove',
    'upload',
    'upload',
    'multipart',
    'download',
    'compose',
    'compose two',
    'watch',
  ),
  path: clientPath,
  second: clientPath,
  third: clientPath,
  caller: fc.constantFrom('root', 'nobody', 'daemon'),
  metadata: fc.constantFrom({}, {}, { a: 'sent' }, { c: '' }, { a: 'of user.svc.a', c: 'sent' }),
});

export const CALLERS = {
  root: { uid: 0, gid: 0 },
  nobody: { uid: ADA, gid: ADA },
  daemon: { uid: BOB, gid: BOB },
} as const;

/** A tree, and what is done to it. */
export const story = fc.record({
  plants: fc.array(plant, { minLength: 4, maxLength: 16 }),
  operations: fc.array(operation, { minLength: 1, maxLength: 12 }),
});
