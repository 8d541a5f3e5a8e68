import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { programsFor, reasonAgainst } from '../support/machine/machine.ts';

/** A measurement: the program of its name in this directory. */
interface Bench {
  readonly what: string;
  readonly args?: string;
  readonly flags?: readonly string[];
  /** A purpose of `.ci/packages.txt`: the programs that it needs. */
  readonly packages?: string;
}

const COLLECTS = ['--expose-gc'];

/** `npm run bench -- NAME [ARGUMENT…]`; most also read ROUNDS from the environment. */
const BENCHES: Readonly<Record<string, Bench>> = {
  collapse: { what: 'the heap in whole windows, with and without the reserved addresses' },
  'collapse-soak': { what: 'collapses of a daemon that works, again and again', args: '[SECONDS]' },
  cp: { what: 'envctl cp each way beside tar, cat and cp', args: '[MIB] [FILES] [ROUNDS]' },
  day: {
    what: "the image's memory after a day's work (npm run build first)",
    args: '[SHARE OF A DAY] [DAYS] [SECONDS OF REST]',
  },
  'fan-out': { what: 'CPU of each further reader of a process', flags: COLLECTS },
  felt: {
    what: 'the times that people wait for, through the published client (npm run build first)',
    args: '[ROUNDS] [ROUNDS OF 1 GIB]',
    packages: 'bench',
  },
  files: { what: 'uploads beside cat, downloads beside nginx', args: '[MIB] [ROUNDS]', packages: 'bench' },
  floor: { what: 'CPU of the calls beside a bare node:http server', args: '[CALL…]' },
  frames: {
    what: 'the frames of a guest that a resume touches',
    args: '[BOOTS] [PAUSES] [RESTORES] [ROUNDS OF WORK]',
    packages: 'guest',
  },
  gateway: {
    what: 'the gateway beside nginx as the proxy',
    args: '[MIB] [CALLS] [IDLE STREAMS] [ROUNDS]',
    packages: 'bench',
  },
  kubernetes: {
    what: 'creations in a real cluster on this machine, by their parts, and memory (docs/kubernetes.md)',
    args: '[ROUNDS] [SANDBOXES]',
  },
  leaks: { what: 'what 10,000 processes leave behind, and a slow reader takes', flags: COLLECTS },
  lines: { what: 'lines a second of programs that write each on its own', flags: COLLECTS },
  'list-dir': { what: 'ListDir and Stat beside find', packages: 'bench' },
  pause: {
    what: 'the time of each step of a pause, idle and after work (npm run build first)',
    args: '[SHARE OF A DAY] [PAUSES]',
  },
  ports: { what: 'a forwarded localhost listener beside a direct connection', args: '[MIB] [ROUNDS]' },
  'ports-idle': {
    what: 'an idle daemon that looks for localhost listeners beside one that does not',
    args: '[SOCKETS] [SECONDS] [ROUNDS]',
  },
  registry: {
    what: 'gateways on one Redis with many sandboxes',
    args: '[SANDBOXES] [GATEWAYS] [SECONDS]',
  },
  spawn: { what: 'the start of a process beside child_process', flags: COLLECTS },
  'start-up': {
    what: 'the time to the first answer, from sources and from dist/ (npm run build first)',
    args: '[ROUNDS] [NAME=COMMAND…]',
  },
  stream: { what: 'CPU of streamed events beside connect-node and a bare socket', flags: COLLECTS },
  tar: {
    what: 'a directory of small files as an archive, each way, beside tar',
    args: '[FILES] [BYTES] [ROUNDS]',
  },
  tenants: {
    what: 'many sandboxes of many owners, one of whom attacks: how late those of the others expire',
    args: '[SANDBOXES] [OWNERS] [SECONDS]',
  },
  unary: { what: 'CPU of a unary call beside connect-node' },
  watch: { what: 'the watcher beside chokidar' },
  'watch-daemon': { what: 'watches of the daemon over its socket' },
};

const [name = '', ...args] = process.argv.slice(2);
const bench = Object.hasOwn(BENCHES, name) ? BENCHES[name] : undefined;
process.exitCode = bench ? run(bench) : refuse();

/** Runs it in a process with its flags; returns the exit code. */
function run({ flags = [], packages }: Bench): number {
  const wanted = packages === undefined ? [] : programsFor(packages);
  if (packages !== undefined) {
    const installer = fileURLToPath(new URL('../../.ci/packages', import.meta.url));
    spawnSync('sh', [installer, packages], { stdio: 'inherit' });
  }
  for (const program of wanted) {
    const reason = reasonAgainst(program);
    if (reason) return complain(`cannot run '${name}': ${reason}`);
  }
  const file = fileURLToPath(new URL(`${name}.ts`, import.meta.url));
  const { status } = spawnSync(process.execPath, [...flags, file, ...args], { stdio: 'inherit' });
  return status ?? 1;
}

function refuse(): number {
  const lines = Object.entries(BENCHES).map(([each, { what, args: takes = '' }]) =>
    `  ${`${each} ${takes}`.padEnd(52)}  ${what}`.trimEnd(),
  );
  const reason = name === '' ? 'a name is missing' : `there is no '${name}'`;
  return complain(`${reason}: npm run bench -- NAME [ARGUMENT…]\n${lines.join('\n')}`);
}

function complain(message: string): number {
  process.stderr.write(`bench: ${message}\n`);
  return 2;
}
