import { execFileSync, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { DAEMON_PROGRAM } from '../../../src/daemon/config/config.ts';
import { gatewayProgram } from '../../../src/gateway/config/config.ts';
import { flagsOf } from '../../../systemd/image/manual.ts';
import { pagesOf } from '../../../systemd/image/pages.ts';
import { needs } from '../../support/machine/needs.ts';
import { scratch } from '../../support/machine/scratch.ts';

const PROGRAMS = [DAEMON_PROGRAM, gatewayProgram()];

/** The text of the file whose path ends like this. */
function page(name: string, end: string): string {
  const [, text] = pagesOf(name).find(([path]) => path.endsWith(end)) ?? [];
  if (text === undefined) throw new Error(`no page ${end}`);
  return text;
}

/** A page as a terminal shows it, in one line without hyphenation. */
function rendered(text: string): string {
  const { stdout, stderr } = spawnSync(
    'groff',
    ['-man', '-ww', '-Tutf8', '-rLL=400n', '-P-c', '-P-b', '-P-u', '-P-o'],
    {
      input: `.nh\n${text}`,
      encoding: 'utf8',
    },
  );
  expect(stderr).toBe('');
  return stdout.replaceAll(/\s+/g, ' ');
}

/** What bash offers after these words, the last of which is being typed. */
function completed(name: string, ...words: readonly string[]): readonly string[] {
  const file = join(scratch(), 'completion');
  writeFileSync(file, page(name, `bash-completion/completions/${name}`));
  const all = [name, ...words].map((word) => `'${word}'`).join(' ');
  const script = `set -eu; . '${file}'; COMP_WORDS=(${all}); COMP_CWORD=${words.length}
    _${name.replaceAll('-', '_')} || :; printf '%s\\n' "\${COMPREPLY[@]}"`;
  return execFileSync('bash', ['-c', script], { encoding: 'utf8' }).trim().split('\n');
}

describe.each(PROGRAMS)('$name', (program) => {
  const { name, settings } = program;
  const flags = flagsOf(program);

  test('every flag of its help is described, with its variable', () => {
    expect(flags.length).toBe(settings.length + (program.switches?.length ?? 0) + 2);
    for (const { flags: text } of settings) {
      const flag = flags.find((one) => one.name === text.split(' ')[0]);
      expect(flag).toMatchObject({ value: /<(.+)>/.exec(text)?.[1] ?? null });
      expect(flag?.variable).toBe(program.prefix + flag?.name.slice(2).replaceAll('-', '_').toUpperCase());
    }
  });

  test('its manual page renders without a warning, and has each flag, its help and its variable', () => {
    needs('groff');
    const text = rendered(page(name, `man1/${name}.1`));
    for (const flag of flags) {
      expect(text).toContain(flag.value === null ? `${flag.name} ` : `${flag.name}=${flag.value} `);
      expect(text).toContain(flag.help.slice(1));
      if (flag.variable !== null) expect(text).toContain(`Variable: ${flag.variable}.`);
    }
  });

  test('bash completes each flag, the choices of a value, and files', () => {
    const offered = completed(name, '-');
    for (const flag of flags) expect(offered).toContain(flag.name);
    expect(completed(name, '--lo')).toContain('--log-level');
    expect(completed(name, '--log-level', 'w')).toEqual(['warn']);
    expect(completed(name, '--log-level', '=', 'w')).toEqual(['warn']);
    expect(completed(name, '--log-level', '=')).toContain('warn');
    expect(completed(name, '--port', '')).toEqual(['']);
    const path = flags.find(({ value }) => ['path', 'file'].includes(value ?? ''))?.name ?? '';
    expect(completed(name, path, '/et')).toEqual(['/etc']);
  });

  test('zsh and fish know each flag, and texts are quoted', () => {
    const zsh = page(name, `site-functions/_${name}`);
    const fish = page(name, `${name}.fish`);
    for (const flag of flags) {
      expect(zsh).toContain(`'${flag.name}${flag.value === null ? '' : '='}[`);
      expect(fish).toMatch(new RegExp(`^complete -c ${name} -l ${flag.name.slice(2)}( |$)`, 'm'));
    }
    execFileSync('bash', ['-n'], { input: zsh });
    const argument = /( -[clsn] \S+| -[rFfx]| -[ad] ('([^'\\]|\\.)*'|[\w]+))/;
    const form = new RegExp(`^complete${argument.source}+$`);
    expect(
      fish
        .trim()
        .split('\n')
        .filter((line) => !form.test(line)),
    ).toEqual([]);
  });
});

test('envd offers doctor as the first word only', () => {
  expect(completed('envd', 'do')).toEqual(['doctor']);
  expect(completed('envd', '--no-cgroups', 'do')).toEqual(['']);
});

test('envd.env(5) renders without a warning and has each variable', () => {
  needs('groff');
  const text = rendered(page('envd', 'man5/envd.env.5'));
  for (const { variable, value } of flagsOf(DAEMON_PROGRAM))
    if (variable !== null) expect(text).toContain(`${variable}=${value ?? '1'} `);
});
