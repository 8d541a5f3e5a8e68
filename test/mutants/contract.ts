import { writeFileSync } from 'node:fs';
import { reported } from '../support/programs/conformance.ts';
import { startDaemon } from '../support/programs/daemon.ts';

/** Holds a daemon from the sources to sections of the contract: `contract.ts REPORT SECTION…`. */
const [report = '', ...sections] = process.argv.slice(2);

await using daemon = await startDaemon();
const only = sections.flatMap((section) => ['--only', section]);
const options = ['--init', '--freeze', '--upgrade', '--limit', '60'];
const { code, results } = await reported('--url', daemon.url, '--dir', '/var/tmp', ...options, ...only);
writeFileSync(report, JSON.stringify(results));
process.exitCode = code ?? 1;
