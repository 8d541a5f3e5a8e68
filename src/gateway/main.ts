import { runAs } from '../base/main.ts';
import { run } from './run.ts';

await runAs('envd-gateway', run);
