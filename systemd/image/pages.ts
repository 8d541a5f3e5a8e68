import type { Program } from '../../src/base/program/settings.ts';
import { packageVersion } from '../../src/base/program/version.ts';
import { DAEMON_PROGRAM } from '../../src/daemon/config/config.ts';
import { gatewayProgram } from '../../src/gateway/config/config.ts';
import { bashCompletion, fishCompletion, zshCompletion } from './completions.ts';
import { flagsOf, manualPage, type Page, variablesPage } from './manual.ts';

const ERROR = ['1', 'An error, such as a port that is taken.'] as const;
const USAGE = [
  '2',
  'A flag, a setting or a requirement is wrong. A start with the same settings would fail again.',
] as const;

const DAEMON: Page = {
  description: [
    'envd runs as root inside of a sandbox, mostly a virtual machine, and serves remote clients over HTTP: they start commands and terminals, transfer files, and watch directories. A platform sets its access token by a call of /init, and freezes the commands before a pause.',
    'Each option is also a variable of the environment; see envd.env(5). A long option may have one dash.',
  ],
  commands: [
    ['doctor', 'print what works in this guest, and whether it is ready for a pause; the same as --doctor'],
  ],
  exitStatus: [
    ['0', 'The daemon was stopped by a signal, or what was asked for was printed.'],
    ERROR,
    USAGE,
    ['3', 'The guest is not ready for a pause, as envd doctor says.'],
  ],
  files: [
    ['/etc/envd/envd.env', 'Variables for the unit; see envd.env(5).'],
    ['/run/envd', 'Records of what is frozen.'],
  ],
  seeAlso: ['envd.env(5)', 'envd-gateway(1)', 'systemctl(1)'],
};

const GATEWAY: Page = {
  description: [
    'envd-gateway is one host for many sandboxes: it passes requests on to the sandbox that they name, and calls a hook of the platform when the time of a sandbox is up.',
    'Each option is also a variable of the environment.',
  ],
  commands: [],
  exitStatus: [
    ['0', 'The gateway was stopped by a signal, or what was asked for was printed.'],
    ERROR,
    USAGE,
  ],
  files: [
    ['/etc/envd-gateway.env', 'Variables for the unit. It has the mode 0600, because it contains keys.'],
  ],
  seeAlso: ['envd(1)', 'systemctl(1)'],
};

/** Returns the manual pages and completions of a program, by their paths below its directory. */
export function pagesOf(name: string): readonly (readonly [path: string, text: string])[] {
  const version = packageVersion();
  switch (name) {
    case DAEMON_PROGRAM.name:
      return [
        ['share/man/man5/envd.env.5', variablesPage(DAEMON_PROGRAM, version, '/etc/envd/envd.env')],
        ...filesOf(DAEMON_PROGRAM, version, DAEMON),
      ];
    case 'envd-gateway':
      return filesOf(gatewayProgram(), version, GATEWAY);
    default:
      throw new Error(`there are no pages of '${name}'`);
  }
}

function filesOf(program: Program, version: string, page: Page): readonly (readonly [string, string])[] {
  const { name } = program;
  const completed = { name, words: page.commands.map(([words]) => words), flags: flagsOf(program) };
  return [
    [`share/man/man1/${name}.1`, manualPage(program, version, page)],
    [`share/bash-completion/completions/${name}`, bashCompletion(completed)],
    [`share/zsh/site-functions/_${name}`, zshCompletion(completed)],
    [`share/fish/vendor_completions.d/${name}.fish`, fishCompletion(completed)],
  ];
}
