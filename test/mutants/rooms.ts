import { globSync, readFileSync } from 'node:fs';
import { dirname, join, matchesGlob, normalize } from 'node:path';

/** What is to find a change of a part of the sources, beyond unit tests; the first prefix that fits counts. */
interface Room {
  readonly prefix: string;
  /** Sections of the contract. */
  readonly contract: readonly string[];
  /** Globs below test/, over real sockets. */
  readonly tests: readonly string[];
}

const room = (prefix: string, contract: string, ...tests: readonly string[]): Room => ({
  prefix,
  contract: contract === '' ? [] : contract.split(' '),
  tests,
});

const EXTENSION_ATTACKS = ['attack/extensions/*', 'attack/files/extensions*'];

const ROOMS: readonly Room[] = [
  room('src/daemon/extensions/archives/', '+', 'daemon/extensions/tar-*', 'attack/files/archives.test.ts'),
  ...['exec', 'ndjson', 'ports', 'search', 'stop', 'terminal', 'usage', 'zip'].map((name) =>
    room(`src/daemon/extensions/${name}/`, '+', `daemon/extensions/${name}*`, ...EXTENSION_ATTACKS),
  ),
  room('src/daemon/extensions/', '+', 'daemon/extensions/*', ...EXTENSION_ATTACKS),
  room(
    'src/daemon/http/websocket/',
    '+',
    'daemon/extensions/{ports,terminal}*',
    'attack/extensions/websockets*',
  ),
  room(
    'src/daemon/services/files/',
    '3 4 5.1 5.2 5.3 5.4',
    ...[
      'daemon/files/{broken,compose,digests,durable,large-raw,full-disk,small}*',
      'attack/files/{uploads,downloads}*',
    ],
  ),
  room('src/daemon/http/rest/files', '2 5.1 5.2 +', 'daemon/files/{browser,digests,download,upload}*'),
  room(
    'src/daemon/services/process/',
    '6 +',
    ...['daemon/process/{process,contract,extensions,identity}*', 'daemon/life/{succession,upgrade,crash}*'],
    'attack/daemon/streams*',
  ),
  room(
    'src/daemon/http/rpc/process',
    '6 +',
    'daemon/process/{process,contract,extensions,identity}*',
    'attack/daemon/streams*',
  ),
  room('src/daemon/services/watch/', '4', 'daemon/watch*', 'attack/watch/*', 'daemon/files/network*'),
  room('src/daemon/http/rpc/watch', '4', 'daemon/watch*'),
  room(
    'src/daemon/services/pause/',
    '7',
    'daemon/guest/{pause,fsfreeze,freeze-refused}*',
    'daemon/http/garbage*',
  ),
  room(
    'src/daemon/services/init/',
    '7',
    'daemon/guest/{init-retries,certificates,metadata-route}*',
    'daemon/life/secrets*',
  ),
  room('src/daemon/services/ports/', '', 'daemon/guest/ports*'),
  room('src/daemon/services/collector/', '', 'daemon/guest/log-collector*'),
  room(
    'src/daemon/services/handover/',
    '7',
    'daemon/life/{upgrade,succession,crash}*',
    'attack/daemon/{upgrades,crashes}*',
  ),
  room('src/daemon/services/guest/', '7', 'daemon/guest/health*', 'daemon/http/metrics*'),
  room(
    'src/daemon/http/rest/',
    '1 2 5.1 5.2 5.4 7',
    'daemon/http/{http,bad-input,openapi,metrics}.test.ts',
    'daemon/life/{server,log}.test.ts',
  ),
  room('src/daemon/http/', '1 2 4 6', 'daemon/http/{unary,http,bad-input}.test.ts', 'attack/daemon/bodies*'),
  room(
    'src/daemon/linux/',
    '3 4 5.1 5.2 5.3 6 7',
    ...[
      'daemon/http/errno.test.ts',
      'daemon/files/durable.test.ts',
      'daemon/extensions/tar-download.test.ts',
      'daemon/life/upgrade.test.ts',
    ],
    'attack/files/uploads*',
  ),
  room(
    'src/daemon/',
    '1 2 4 6 7',
    'daemon/life/{daemon,server,log,upgrade}.test.ts',
    'daemon/http/http.test.ts',
  ),
  ...['src/gateway/api/creat', 'src/gateway/leases/creation.ts', 'src/gateway/expiry/machine-'].map(
    (prefix) => room(prefix, '', 'gateway/create*', 'attack/gateway/creations*'),
  ),
  ...[
    'src/gateway/access/previews.ts',
    'src/gateway/api/preview-routes.ts',
    'src/gateway/routes/preview-gate.ts',
  ].map((prefix) => room(prefix, '', 'gateway/previews*', 'attack/gateway/previews*')),
  room('src/gateway/expiry/', '', 'gateway/{expiry,race,several,crash,platform}*', 'attack/gateway/guest*'),
  room('src/gateway/hooks/', '', 'gateway/{expiry,race,platform}*'),
  room('src/gateway/leases/', '', 'gateway/{expiry,race,registry,platform}*'),
  room('src/gateway/registry/', '', 'gateway/{registry,several,crash,lists}*', 'attack/gateway/redis*'),
  room('src/gateway/access/', '', 'gateway/{closed,routing,config}*', 'attack/gateway/{addresses,keys}*'),
  room('src/gateway/routes/', '', 'gateway/{routing,by-name,closed}*', 'attack/gateway/{loops,names,lanes}*'),
  room(
    'src/gateway/proxy/',
    '',
    'gateway/{routing,client}*',
    'attack/gateway/{answers,requests,limits,lanes}*',
  ),
  room('src/gateway/', '', 'gateway/{platform,lists,config,closed,routing}*'),
  room('src/kubernetes/', '', 'kubernetes/*'),
  room('src/cli/console/', '', 'cli/console/*', 'attack/console/*'),
  room('src/conformance/', '', 'conformance.test.ts'),
  room('src/cli/', '', 'cli/*'),
  room('src/base/', '1 6 7', 'daemon/life/{daemon,log,server}.test.ts', 'gateway/{config,platform}*'),
];

/** A unit test that is farther away in the graph of imports tells little of a file. */
const FARTHEST = 2;
const MOST_UNIT_TESTS = 6;

/** Test files, or sections of the contract. */
export interface Stage {
  readonly kind: 'tests' | 'contract';
  readonly names: readonly string[];
}

/** Which tests are to find a change of a file: those that cost least come first. */
export class Rooms {
  readonly #tests: readonly string[];
  readonly #imports = new Map<string, readonly string[]>();
  readonly #root: string;
  readonly #isQuick: boolean;

  /** `isQuick`: without the tests that attack, which take long. */
  constructor(root: string, isQuick: boolean) {
    this.#root = root;
    this.#isQuick = isQuick;
    this.#tests = globSync('test/**/*.test.ts', { cwd: root }).sort();
  }

  /** What is run for a file, one after the other. */
  stagesOf(file: string): Stage[] {
    const { contract = [], tests = [] } = ROOMS.find(({ prefix }) => file.startsWith(prefix)) ?? {};
    const over = tests.flatMap((glob) =>
      this.#tests.filter((test) => matchesGlob(test, `test/${withSuffix(glob)}`)),
    );
    const stages: Stage[] = [
      { kind: 'tests', names: this.#unitTestsOf(file) },
      { kind: 'contract', names: contract },
      { kind: 'tests', names: over.filter((test) => !isAttack(test)) },
      { kind: 'tests', names: this.#isQuick ? [] : over.filter(isAttack) },
    ];
    return stages.filter(({ names }) => names.length > 0);
  }

  /** By their distance in the graph of imports; the one that mirrors the file is the nearest. */
  #unitTestsOf(file: string): string[] {
    const mirror = file.replace(/^src\//, 'test/unit/').replace(/\.ts$/, '.test.ts');
    return this.#tests
      .filter((test) => test.startsWith('test/unit/'))
      .map((test) => ({ test, distance: test === mirror ? 0 : this.#distance(test, file) }))
      .filter(({ distance }) => distance <= FARTHEST)
      .sort((a, b) => a.distance - b.distance)
      .slice(0, MOST_UNIT_TESTS)
      .map(({ test }) => test);
  }

  #distance(from: string, to: string): number {
    let reached = [from];
    for (let distance = 1; distance <= FARTHEST; distance += 1) {
      reached = reached.flatMap((file) => this.#importsOf(file));
      if (reached.includes(to)) return distance;
    }
    return Number.POSITIVE_INFINITY;
  }

  #importsOf(file: string): readonly string[] {
    const known = this.#imports.get(file);
    if (known) return known;
    const text = /\.ts$/.test(file) ? readFileSync(join(this.#root, file), 'utf8') : '';
    const specifiers = text.matchAll(/\bfrom '(\.[^']+\.ts)'|\bimport\('(\.[^']+\.ts)'\)/g);
    const found = Array.from(specifiers, ([, one, lazy]) =>
      normalize(join(dirname(file), one ?? lazy ?? '')),
    );
    this.#imports.set(file, found);
    return found;
  }
}

const isAttack = (test: string) => test.startsWith('test/attack/');
const withSuffix = (glob: string) => (glob.endsWith('.ts') ? glob : `${glob.replace(/\*$/, '')}*.test.ts`);
