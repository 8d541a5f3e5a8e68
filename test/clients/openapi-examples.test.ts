import { beforeEach, describe, expect, test } from 'vitest';
import type { Outcome } from '../support/code/documents.ts';
import { type Operation, readOperations, violation } from '../support/code/openapi.ts';
import { needs } from '../support/machine/needs.ts';
import { runBlocks } from '../support/programs/talk.ts';

/* The example of each operation, as it stands in the documents, against a daemon and a gateway. */

/** Prints the status on a line of its own after the answer. */
const DEFINITIONS = `TOKEN=secret
curl() { command curl -sS -w '\\n%{http_code}' "$@"; }`;
const GATEWAY =
  'npm run gateway -- --api-key KEY --allow-addresses 127.0.0.0/8 --hook true --resume-hook true';
/** What others need, and what ends it. */
const FIRST = ['init', 'uploadFiles'];
const LAST = ['removeSandbox', 'upgrade'];
/**
 * /proc is what the tests' daemon freezes: it cannot be. No process has the tag, nothing listens, and this gateway has no hook for
 * creations and lists, no templates and no domain.
 */
const REFUSED = [
  ...['freezeFilesystem', 'stopProcess', 'readResult', 'readOutput', 'waitForPort'],
  ...['createSandbox', 'makePreviewLink'],
  ...['listTemplates', 'getTemplateAlias', 'getGatewayDifferences'],
];
/** These do not end. Blocks of docs/extensions.md follow them. */
const ENDLESS = ['followMetrics', 'followPorts', 'openTunnel', 'openTerminal'];

interface Shown {
  readonly operation: Operation;
  readonly code: string;
}

const shown: Shown[] = ['envd.openapi.yaml', 'gateway.openapi.yaml']
  .flatMap((document) => readOperations(document))
  .filter(({ operationId }) => !ENDLESS.includes(operationId))
  .map((operation) => ({ operation, code: operation['x-codeSamples']?.[0]?.source ?? '' }));
const placeOf = ({ operation: { operationId } }: Shown) =>
  Number(LAST.includes(operationId)) - Number(FIRST.includes(operationId));
shown.sort((a, b) => placeOf(a) - placeOf(b));

test('each operation has an example', () => {
  expect(shown.filter(({ code }) => !code.includes('curl '))).toEqual([]);
  expect(shown.length).toBeGreaterThan(25);
});

describe('the example of', () => {
  let outcomes: Outcome[];
  beforeEach(async () => {
    needs('mounts', 'ip', 'curl', 'cgroup v2');
    outcomes ??= await runAll();
  });

  async function runAll(): Promise<Outcome[]> {
    const block = (language: string, code: string) => ({
      ...{ file: '', heading: '', line: 0, output: '' },
      ...{ language, code },
    });
    const examples = shown.map(({ code }) => block('sh', code));
    return (await runBlocks([block('sh', DEFINITIONS), block('console', GATEWAY), ...examples])).slice(2);
  }

  test.each(shown.map(({ operation: { operationId } }, index) => [operationId, index] as const))(
    '%s is answered as the document tells',
    (id, index) => {
      const { stdout = '', stderr, exitCode } = outcomes[index] ?? {};
      const operation = shown[index]?.operation;
      expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
      const [, body = '', status = ''] = /^(.*)\n(\d{3})$/s.exec(stdout) ?? [];
      expect(Object.keys(operation?.responses ?? {})).toContain(status);
      if (!REFUSED.includes(id)) expect(status).toMatch(/^2/);
      const schema = operation?.responses[status]?.content?.['application/json']?.schema;
      if (schema && !('allOf' in schema) && body.startsWith('{'))
        expect(violation(schema, JSON.parse(body))).toBeNull();
    },
  );
});
